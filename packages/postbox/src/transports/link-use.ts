import type { Runtime } from "../internal/runtime.js";

/** How long a connection that was opened after `close` waits for more messages. */
const lingerMs = 1000;

/** Counts the sends that use a link, so that `close` ends it when none does. */
export interface LinkUse {
  /** A run connects: the link stays open until the next `close`. */
  reopen(): void;
  /** Settles as `send` does; the link stays open until then. */
  during(send: () => Promise<void>): Promise<void>;
  /**
   * Waits for the sends in progress, and closes the link. A later send opens a link, which closes if no other send
   * follows.
   */
  close(): Promise<void>;
}

export function createLinkUse(links: { close(): Promise<void> }, runtime: Runtime): LinkUse {
  let sending = 0;
  let closed = false;
  let cancelEnd = () => {};
  const idlers: (() => void)[] = [];

  /** A link that was opened after `close` closes by itself, so that it keeps no process alive. */
  function ended(): void {
    if (--sending > 0) return;
    for (const idle of idlers.splice(0)) idle();
    if (closed) cancelEnd = runtime.schedule(() => void links.close(), lingerMs);
  }

  return {
    reopen() {
      closed = false;
    },
    async during(send) {
      sending++;
      cancelEnd();
      try {
        await send();
      } finally {
        ended();
      }
    },
    async close() {
      closed = true;
      // Other sends over the same link are not disturbed.
      if (sending > 0) await new Promise<void>((resolve) => idlers.push(resolve));
      cancelEnd();
      await links.close();
    },
  };
}
