import type { Sender } from "postbox";
import type { Runtime } from "postbox/store";

/**
 * A runtime that simulates a killed relay process. Once `due()` returns true, the relay freezes at the next message
 * that it has sent and not yet settled. From then on, not even its timers run. `died` resolves at that moment.
 */
export function deadAfterSending(due: () => boolean): { runtime: Partial<Runtime>; died: Promise<void> } {
  let dead = false;
  let die = () => {};
  const died = new Promise<void>((resolve) => {
    die = resolve;
  });
  const runtime: Partial<Runtime> = {
    async failpoint(name) {
      if (name !== "relay.sent" || !due()) return;
      dead = true;
      die();
      await new Promise(() => {});
    },
    schedule(task, ms) {
      const timer = setTimeout(() => dead || task(), ms);
      return () => clearTimeout(timer);
    },
  };
  return { runtime, died };
}

/** Sends every `nth` message twice, as happens after a lost confirm. */
export function sendingTwice(sender: Sender, nth: number): Sender {
  let count = 0;
  return {
    ...sender,
    async send(messages, settled, signal) {
      await sender.send(messages, settled, signal);
      const again = messages.filter(() => ++count % nth === 0);
      if (again.length > 0) await sender.send(again, () => {}, signal);
    },
  };
}
