import { createWake, type Wake } from "../internal/wake.js";
import type { TakenLane } from "../store.js";
import type { DrainContext } from "./context.js";
import { createDoubt, createSuspicion, type Suspicion } from "./isolation/suspicion.js";
import { Window } from "./ordering/window.js";
import type { Ownership } from "./owning/ownership.js";
import { Reader } from "./reading/reader.js";
import { Outcomes } from "./sending/outcomes.js";
import { SendLoop } from "./sending/send-loop.js";
import { createOrderedSettling, type OrderedSettling } from "./settling/ordered-settling.js";
import { Settler } from "./settling/settler.js";
import type { Target } from "./target.js";

export interface EngineOptions extends DrainContext {
  readonly ownership: Ownership;
  readonly target: Target;
}

/** Moves the rows of the lanes that it is given. Reading, sending and settling run concurrently. */
export class Engine {
  readonly #options: EngineOptions;
  readonly #isTotal: boolean;
  readonly #window: Window;
  readonly #suspicion: Suspicion;
  readonly #reader: Reader;
  readonly #sendLoop: SendLoop;
  readonly #settler: Settler;
  readonly #ordered: OrderedSettling;
  /** Wakes `drain`. */
  readonly #settled: Wake;
  /** Ends reading and sending. */
  readonly #stop = new AbortController();
  #fatal: { readonly error: unknown } | undefined;

  constructor(options: EngineOptions) {
    const { target, runtime, order } = options;
    this.#options = options;
    this.#isTotal = order === "total";
    this.#settled = createWake(runtime);
    this.#suspicion = createSuspicion(3 * options.maxInFlight);
    const keepsOrder = target.keepsOrder && !this.#isTotal;
    const window = new Window({ keepsOrder, order, seen: (row) => this.#suspicion.mark(row) });
    const doubt = createDoubt();
    const changed = () => this.#changed();
    this.#settler = new Settler({
      ...options,
      settled: (decision) => outcomes.stored(decision),
      roomLeft: changed,
      appendedNothing: (writer) => this.#reader.appendedNothing(writer),
    });
    this.#ordered = createOrderedSettling(this.#settler, window);
    const outcomes = new Outcomes({
      ...{ window, settling: this.#ordered, doubt, target, context: options, changed },
      readAgain: ({ position }, inMs) => this.#reader.readAgain(position, inMs),
      dueIn: (ms) => this.#reader.dueIn(ms),
    });
    this.#window = window;
    this.#reader = this.#createReader(outcomes);
    const oneByOne = this.#isTotal || target.oneByOne;
    const roomLeft = () => this.#reader.roomLeft();
    this.#sendLoop = new SendLoop({ ...options, window, settler: this.#settler, outcomes, doubt, oneByOne, roomLeft });
  }

  #createReader(outcomes: Outcomes): Reader {
    const { boxName, telemetry, ownership, isFatal, storeBackoff, failed } = this.#options;
    return new Reader({
      ...this.#options,
      window: this.#window,
      failed: (error, failures) => {
        if (isFatal(error)) {
          this.#fatal = { error };
          this.#stop.abort();
          return 0;
        }
        const retryInMs = storeBackoff(failures);
        failed(error, retryInMs);
        return retryInMs;
      },
      arrived: (held) => {
        outcomes.held(held);
        this.#sendLoop.wake();
      },
      drawn: (lanes, position) => this.#suspicion.bound(lanes, position),
      serverChanged(server) {
        telemetry({ name: "relay.server-changed", box: boxName, server });
        ownership.startAnew();
      },
    });
  }

  #changed(): void {
    this.#sendLoop.wake();
    this.#settled.wake();
  }

  gained(lanes: readonly TakenLane[]): void {
    this.#suspicion.add(lanes.filter(({ clean }) => !clean).map(({ lane }) => lane));
    this.#reader.add(lanes.map(({ lane }) => lane));
  }

  lost(lanes: readonly number[]): void {
    for (const lane of lanes) {
      this.#reader.remove(lane);
      this.#suspicion.remove(lane);
      this.#window.drop(lane);
      this.#ordered.drop(lane);
      this.#settler.drop(lane);
    }
    this.#changed();
  }

  /** The lease is valid again: sends what was read. */
  resume(): void {
    this.#sendLoop.wake();
  }

  /** The box may have new rows: reads at once. */
  notified(): void {
    this.#reader.notified();
  }

  /** A waiting row is due in `ms`: reads it then. */
  dueIn(ms: number): void {
    this.#reader.dueIn(ms);
  }

  /**
   * Sends nothing more of these lanes, and waits for what is in flight. Returns the lanes that are idle now. The others
   * took too long, and the engine keeps working on them.
   */
  async drain(lanes: readonly number[]): Promise<readonly number[]> {
    const { runtime, ownership, publishTimeoutMs } = this.#options;
    for (const lane of lanes) {
      this.#reader.remove(lane);
      this.#window.forget(lane);
    }
    const deadline = runtime.monotonic() + 2 * publishTimeoutMs;
    while (!lanes.every((lane) => this.#window.isIdle(lane))) {
      const leftMs = deadline - runtime.monotonic();
      if (leftMs <= 0 || this.#stop.signal.aborted) {
        // Some lanes may have been lost meanwhile. A total order needs all lanes that are left.
        const goesOn = (lane: number) => ownership.epochs.has(lane) && (this.#isTotal || !this.#window.isIdle(lane));
        this.#reader.add(lanes.filter(goesOn));
        return lanes.filter((lane) => !goesOn(lane));
      }
      await this.#settled.wait(this.#stop.signal, leftMs);
    }
    return lanes;
  }

  /**
   * Runs until the signal is aborted. Then it stops reading and sending, waits for what is in flight, settles it, and
   * resolves. Rejects if retrying can never succeed.
   */
  async run(signal: AbortSignal): Promise<void> {
    const onAbort = () => this.#stop.abort();
    signal.addEventListener("abort", onAbort, { once: true });
    if (signal.aborted) onAbort();
    const { signal: stopped } = this.#stop;
    // The settler outlives the sending, since what is in flight has yet to be settled.
    const finish = new AbortController();
    const sending = this.#sendLoop.run(stopped).then(() => finish.abort());
    try {
      await Promise.all([this.#reader.run(stopped), sending, this.#settler.run(finish.signal)]);
    } finally {
      signal.removeEventListener("abort", onAbort);
    }
    if (this.#fatal !== undefined) throw this.#fatal.error;
  }
}
