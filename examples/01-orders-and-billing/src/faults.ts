import type { Runtime, Sender } from "postbox";

/**
 * A relay with this runtime stops dead when it has sent something and not yet settled it, as if its process had been
 * killed there, as soon as `due` says so: nothing of it goes on, not even its timers.
 */
export function killedAfterSending(due: () => boolean): { runtime: Partial<Runtime>; killed: Promise<void> } {
  let dead = false;
  let kill = () => {};
  const killed = new Promise<void>((resolve) => {
    kill = resolve;
  });
  const runtime: Partial<Runtime> = {
    async failpoint(name) {
      if (name !== "relay.sent" || !due()) return;
      dead = true;
      kill();
      await new Promise(() => {});
    },
    schedule(task, ms) {
      const timer = setTimeout(() => dead || task(), ms);
      return () => clearTimeout(timer);
    },
  };
  return { runtime, killed };
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
