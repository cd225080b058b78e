interface Task {
  readonly key: string | undefined;
  /** The stream of the delivery. Each stream has its own limit. */
  readonly stream?: string | undefined;
  /** Whether it comes from the consumer's box, and not from the broker. Defaults to false. */
  readonly isKept?: boolean;
  run(): Promise<void>;
}

/**
 * Runs tasks concurrently, but tasks of the same key one after another, in order of arrival. Bounded per stream: `push`
 * resolves when its stream has room for another task.
 *
 * Tasks from the box and from the broker take turns. Otherwise each message of the box would wait for all that the
 * broker has delivered already, as long as it delivers.
 */
export interface KeyQueue<T extends Task> {
  push(task: T): Promise<void>;
  /** Removes tasks that have not started: all of them, or those that `which` selects. */
  take(which?: (task: T) => boolean): readonly T[];
  /** Resolves when nothing runs. */
  idle(): Promise<void>;
}

/** What one stream has in the queue. */
interface Room {
  buffered: number;
  readonly waiters: (() => void)[];
}

const room = Promise.resolve();
/** Most messages have no other message of their key behind them, and share this. */
const nobody: readonly never[] = [];

export function createKeyQueue<T extends Task>(concurrency: number, maxBuffered: number): KeyQueue<T> {
  let [ready, kept]: [T[], T[]] = [[], []];
  let wasKept = false;
  const behind = new Map<string, T[] | typeof nobody>();
  let running = 0;
  /** For deliveries without a stream, which is every delivery with most brokers. */
  const shared: Room = { buffered: 0, waiters: [] };
  /** Only of streams that have tasks here. */
  const rooms = new Map<string, Room>();
  const idlers: (() => void)[] = [];

  const roomOf = (stream: string | undefined): Room => {
    if (stream === undefined) return shared;
    const known = rooms.get(stream);
    if (known !== undefined) return known;
    const made = { buffered: 0, waiters: [] };
    rooms.set(stream, made);
    return made;
  };
  /** A task has left the buffer, so its stream has room. */
  const left = ({ stream }: T) => {
    const own = roomOf(stream);
    own.buffered--;
    while (own.waiters.length > 0 && own.buffered < maxBuffered) (own.waiters.shift() as () => void)();
    if (stream !== undefined && own.buffered === 0) rooms.delete(stream);
  };
  const readyFor = ({ isKept = false }: T): T[] => (isKept ? kept : ready);
  /** The task whose turn it is. There is one. */
  const nextInTurn = (): T => {
    wasKept = kept.length > 0 && (ready.length === 0 || !wasKept);
    return (wasKept ? kept : ready).shift() as T;
  };
  /** Starts the next task of a key. */
  const free = (key: string) => {
    const queue = behind.get(key);
    const next = queue === undefined || queue === nobody ? undefined : (queue as T[]).shift();
    if (next === undefined) behind.delete(key);
    else readyFor(next).push(next);
  };
  const finished = (task: T) => {
    running--;
    if (task.key !== undefined) free(task.key);
    pump();
    if (running === 0) for (const idler of idlers.splice(0)) idler();
  };
  const pump = () => {
    while (running < concurrency && ready.length + kept.length > 0) {
      const task = nextInTurn();
      running++;
      left(task);
      const done = () => finished(task);
      task.run().then(done, done);
    }
  };

  return {
    push(task) {
      const own = roomOf(task.stream);
      own.buffered++;
      const queue = task.key === undefined ? undefined : behind.get(task.key);
      if (queue === nobody) behind.set(task.key as string, [task]);
      else if (queue !== undefined) (queue as T[]).push(task);
      else {
        if (task.key !== undefined) behind.set(task.key, nobody);
        readyFor(task).push(task);
      }
      pump();
      return own.buffered < maxBuffered ? room : new Promise((resolve) => own.waiters.push(resolve));
    },
    take(which = () => true) {
      const taken: T[] = [];
      const stays = (task: T) => {
        if (!which(task)) return true;
        taken.push(task);
        return false;
      };
      ready = ready.filter(stays);
      kept = kept.filter(stays);
      const freed = taken.flatMap(({ key }) => (key === undefined ? [] : [key]));
      for (const [key, queue] of behind) if (queue !== nobody) behind.set(key, (queue as T[]).filter(stays));
      // Tasks that stay may have waited behind one that was removed.
      for (const key of freed) free(key);
      for (const task of taken) left(task);
      pump();
      return taken;
    },
    async idle() {
      if (running > 0) await new Promise<void>((resolve) => idlers.push(resolve));
    },
  };
}
