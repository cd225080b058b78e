interface Task {
  readonly key: string | undefined;
  run(): Promise<void>;
}

/**
 * Runs tasks at the same time, but those of one key one after the other, in the order they came.
 * Bounded: `push` resolves when there is room for another.
 */
export interface KeyQueue<T extends Task> {
  push(task: T): Promise<void>;
  /** Takes out everything that has not been started. */
  clear(): readonly T[];
  /** Resolves when nothing runs. */
  idle(): Promise<void>;
}

const room = Promise.resolve();
/** Behind most messages there is no other of their key: they share this. */
const nobody: readonly never[] = [];

export function createKeyQueue<T extends Task>(concurrency: number, maxBuffered: number): KeyQueue<T> {
  let ready: T[] = [];
  const behind = new Map<string, T[] | typeof nobody>();
  let running = 0;
  let buffered = 0;
  const waiters: (() => void)[] = [];
  const idlers: (() => void)[] = [];

  const wake = () => {
    while (waiters.length > 0 && buffered < maxBuffered) (waiters.shift() as () => void)();
    if (running === 0) for (const idler of idlers.splice(0)) idler();
  };
  const finished = (task: T) => {
    running--;
    if (task.key !== undefined) {
      const queue = behind.get(task.key);
      const next = queue === undefined || queue === nobody ? undefined : (queue as T[]).shift();
      if (next === undefined) behind.delete(task.key);
      else ready.push(next);
    }
    pump();
    wake();
  };
  const pump = () => {
    while (running < concurrency && ready.length > 0) {
      const task = ready.shift() as T;
      buffered--;
      running++;
      const done = () => finished(task);
      task.run().then(done, done);
    }
  };

  return {
    push(task) {
      buffered++;
      const queue = task.key === undefined ? undefined : behind.get(task.key);
      if (queue === nobody) behind.set(task.key as string, [task]);
      else if (queue !== undefined) (queue as T[]).push(task);
      else {
        if (task.key !== undefined) behind.set(task.key, nobody);
        ready.push(task);
      }
      pump();
      return buffered < maxBuffered ? room : new Promise((resolve) => waiters.push(resolve));
    },
    clear() {
      const dropped = [...ready, ...[...behind.values()].flat()];
      ready = [];
      behind.clear();
      buffered = 0;
      for (const waiter of waiters.splice(0)) waiter();
      return dropped;
    },
    async idle() {
      if (running > 0) await new Promise<void>((resolve) => idlers.push(resolve));
    },
  };
}
