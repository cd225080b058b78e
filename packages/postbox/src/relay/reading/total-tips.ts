import { laneCount } from "../../internal/lane.js";
import type { LaneRead, LaneRows, Row, Writers } from "../../store.js";
import type { DrainContext } from "../context.js";
import type { Window } from "../ordering/window.js";
import { Gap } from "./gap.js";
import type { Lanes, ReadLane } from "./lanes.js";
import type { Admitted, Tips } from "./tips.js";

export interface TotalTipsOptions extends DrainContext {
  readonly lanes: Lanes;
  readonly window: Window;
  /** No read begins while this many rows are buffered. */
  readonly most: number;
  maxBytes(): number;
}

/** The stored rows in order of position, without omissions up to `upTo`; and the writers in progress then. */
interface InOrder {
  readonly rows: readonly Row[];
  readonly writers?: Writers;
  readonly upTo: number;
  readonly more: boolean;
}

/** Reads all lanes as one, in order of position, and stops at a gap. */
export class TotalTips implements Tips {
  readonly #options: TotalTipsOptions;
  /** Absent if the box is in commit order: then no gap is ever filled. */
  #gap: Gap | undefined;
  /** The read in progress; absent once its result no longer counts. */
  #asked: Asked | undefined;

  constructor(options: TotalTipsOptions) {
    this.#options = options;
    this.forget();
  }

  get isFull(): boolean {
    return this.#options.window.buffered >= this.#options.most;
  }

  /**
   * Not while another relay owns a lane, which may have an earlier row. Nor until the failure of a row in its place is
   * stored.
   */
  get canRead(): boolean {
    const { lanes, window } = this.#options;
    return lanes.all.length === laneCount && !window.isHeldUp;
  }

  next(): readonly LaneRead[] {
    const { all } = this.#options.lanes;
    const after = Math.min(...all.map(({ cursor }) => cursor));
    this.#asked = { lanes: all, after };
    return all.map(({ lane, limit }) => ({ lane, after, limit }));
  }

  async admit(found: LaneRows): Promise<Admitted> {
    const { lanes, batchSize, boxName, telemetry } = this.#options;
    const asked = this.#asked;
    const inOrder = asked && (await this.#inOrder(found, asked));
    // Meanwhile, a lane was lost or a row has failed in its place.
    if (inOrder === undefined || this.#asked !== asked || lanes.all !== asked?.lanes) {
      return { rows: [], late: 0, more: true, blocked: false };
    }
    const { rows, writers, upTo, more } = inOrder;
    const { count, blocked } = (writers && this.#gap?.pass(rows, asked.after, upTo, writers)) ?? { count: rows.length };
    const passed = rows.slice(0, count);
    const last = lastOf(passed, asked.after);
    // Moves the cursor even if nothing was found: otherwise the database may have to walk over deleted rows each time.
    const cursor = blocked === undefined && writers?.none !== false ? upTo : last;
    for (const lane of lanes.all) {
      lane.cursor = cursor;
      // Rows beyond the end of another lane are read again: few at first, then more as long as there are more.
      lane.limit = more ? Math.min(2 * lane.limit, Math.ceil(batchSize / 8)) : lanes.smallest;
    }
    if (blocked === "newly") telemetry({ name: "relay.blocked", box: boxName, before: last + 1 });
    return { rows: passed, late: 0, more: more && blocked === undefined, blocked: blocked !== undefined };
  }

  async #inOrder({ rows, writers, more, drawn }: LaneRows, { lanes, after }: Asked): Promise<InOrder> {
    const { box, batchSize, maxBytes } = this.#options;
    const at = writers === undefined ? {} : { writers };
    const inOrder = [...rows].sort((a, b) => a.position - b.position);
    if (more.size === 0) return { rows: inOrder, ...at, upTo: Math.max(lastOf(inOrder, after), drawn), more: false };
    const ends = new Map(rows.map(({ lane, position }) => [lane, position]));
    const upTo = Math.min(...[...more].map((lane) => ends.get(lane) ?? Number.NaN));
    if (upTo > 0) return { rows: inOrder.filter(({ position }) => position <= upTo), ...at, upTo, more: true };
    // The read reached its bytes before it had read every lane, and the first row may be in one of the others.
    const gaps = lanes.map(({ lane }) => ({ lane, after, upTo: Number.MAX_SAFE_INTEGER, known: [] }));
    const first = await box.late(gaps, batchSize, { maxBytes: maxBytes() });
    const last = lastOf(first.rows, after);
    return { ...first, upTo: first.more ? last : Math.max(last, drawn) };
  }

  hasRoomAgain(): boolean {
    return false;
  }

  /** A row has failed in its place: reads again from that row on. */
  readAgain(position: number): void {
    this.#asked = undefined;
    const { all, smallest } = this.#options.lanes;
    for (const lane of all) {
      lane.cursor = Math.min(lane.cursor, position - 1);
      lane.limit = smallest;
    }
  }

  forget(): void {
    this.#gap = this.#options.box.inCommitOrder ? undefined : new Gap();
  }
}

interface Asked {
  readonly lanes: readonly ReadLane[];
  readonly after: number;
}

function lastOf(rows: readonly Row[], otherwise: number): number {
  return rows.at(-1)?.position ?? otherwise;
}
