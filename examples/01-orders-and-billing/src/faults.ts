import type { Sender } from "postbox";
import type { Runtime } from "postbox/store";

/**
 * A relay with this runtime stops dead when it has sent something and not yet settled it, as if its process had been
 * killed there, as soon as `due` says so: nothing of it goes on, not even its timers.
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

/** Sends every `nth` message twice, as brokers do when a confirm gets lost. */
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
