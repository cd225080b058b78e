import type { HintListener } from "../../store.js";

/** Who listens to the boxes of a database, in whatever store object it is. */
export class MemoryHints {
  readonly #listeners = new Map<string, Set<HintListener>>();

  send(box: string): void {
    for (const listener of this.#listeners.get(box) ?? []) listener.hinted();
  }

  async listen(box: string, listener: HintListener, signal: AbortSignal): Promise<void> {
    const listeners = this.#listeners.get(box) ?? new Set();
    this.#listeners.set(box, listeners);
    if (signal.aborted) return;
    const aborted = new Promise<void>((resolve) => {
      signal.addEventListener("abort", () => resolve(), { once: true });
    });
    listeners.add(listener);
    listener.listening();
    await aborted;
    listeners.delete(listener);
  }
}
