import type { ChannelModel } from "amqplib";
import { PostboxError, TransportDownError } from "../../errors.js";
import { type ConfirmedPublishing, confirmedPublishing } from "./confirms.js";
import { close, destroy, openConnection, placeOf, type RabbitmqConnectionOptions } from "./connection.js";
import { exchangeExists } from "./topology.js";
import type { Watch } from "./watch.js";

/** A connection with a channel for nothing but publishing. */
export interface Link {
  readonly connection: ChannelModel;
  readonly publishing: ConfirmedPublishing;
  readonly lost: boolean;
  /** What the broker said when it closed the channel. */
  readonly reason?: { readonly code?: number; readonly message: string };
  /** Which of these exchanges are not there. Asks once for each that is. */
  missing(exchanges: Iterable<string>): Promise<ReadonlySet<string>>;
  /** Ends it at once: whatever is still on its way, nobody waits for its confirm any more. */
  giveUp(why: string): void;
  /**
   * From now on it ends at once if its broker is blocked: nobody has the time to wait until that takes messages again.
   */
  hurry(): void;
  /** Ends it in good order, but in a hurry. */
  close(): Promise<void>;
}

/** The link of whoever publishes: opened when it is first needed, and another one when it was lost. */
export interface Links {
  /** The one there is. */
  readonly current: Link | undefined;
  /** The one there is, or a new one: one for all who ask at once. */
  get(): Promise<Link>;
  /** The one there is, and every new one, is in a hurry from now on. */
  hurry(): void;
  close(): Promise<void>;
}

export function createLinks(
  options: RabbitmqConnectionOptions,
  watch: Pick<Watch, "connected" | "lost" | "closed">,
): Links {
  const place = placeOf(options.url);
  let opening: Promise<Link> | undefined;
  let giveUp = new AbortController();
  let current: Link | undefined;
  let hurried = false;

  function forget(link: Link, why: string | undefined): void {
    // One that is lost before it was ours is told of by whoever opens it.
    if (current !== link) return;
    current = opening = undefined;
    if (why === undefined) watch.closed();
    else watch.lost(new TransportDownError("send", `${place} was lost: ${why}`));
  }

  async function open(): Promise<Link> {
    const { signal } = giveUp;
    try {
      const connection = await openConnection(options, signal);
      const link = await linkOn(connection, place, forget).catch((error: Error) => {
        destroy(connection);
        throw new TransportDownError("connect", `${place} was lost: ${error.message}`);
      });
      if (link.lost) throw new TransportDownError("connect", `${place} was lost at once`);
      current = link;
      if (hurried) link.hurry();
      watch.connected(connection);
      return link;
    } catch (error) {
      if (signal.aborted) watch.closed();
      else watch.lost(PostboxError.from(error, "transport-down"));
      throw error;
    }
  }

  return {
    get current() {
      return current;
    },
    get() {
      if (opening === undefined) {
        const own = open();
        opening = own;
        own.catch(() => {
          if (opening === own) opening = undefined;
        });
      }
      return opening;
    },
    hurry() {
      hurried = true;
      current?.hurry();
    },
    async close() {
      // What is open ends in good order; what is being opened is not waited for.
      if (current === undefined) {
        giveUp.abort(new TransportDownError("connect", `the connection to ${place} was closed while it was opened`));
        giveUp = new AbortController();
      }
      const link = await opening?.catch(() => undefined);
      await link?.close();
    },
  };
}

/** `lost` hears once of its end, and why, unless it was closed. */
async function linkOn(
  connection: ChannelModel,
  place: string,
  lost: (link: Link, why: string | undefined) => void,
): Promise<Link> {
  const channel = await connection.createConfirmChannel();
  const known = new Set<string>();
  const lose = (why: string) => {
    if (link.lost) return;
    link.lost = true;
    lost(link, closing ? undefined : why);
  };
  let closing = false;
  let hurried = false;
  let blocked = false;
  const link: { -readonly [Part in keyof Link]: Link[Part] } = {
    connection,
    publishing: confirmedPublishing(channel),
    lost: false,

    async missing(exchanges) {
      const missing = new Set<string>();
      try {
        for (const name of exchanges) {
          if (known.has(name)) continue;
          if (await exchangeExists(connection, name)) known.add(name);
          else missing.add(name);
        }
      } catch (error) {
        throw new TransportDownError("connect", `${place} was lost: ${(error as Error).message}`);
      }
      return missing;
    },

    giveUp(why) {
      lose(why);
      // Whoever closes it waits for the broker's answer.
      if (!closing) destroy(connection);
    },

    hurry() {
      hurried = true;
      if (blocked) destroy(connection);
    },

    async close() {
      closing = true;
      link.hurry();
      await close(connection).catch(() => {});
    },
  };
  connection.on("blocked", () => {
    blocked = true;
    if (hurried) destroy(connection);
  });
  connection.on("unblocked", () => {
    blocked = false;
  });
  channel.on("error", (error) => {
    link.reason = error;
  });
  channel.on("close", () => {
    lose(link.reason?.message ?? "the connection ended");
    connection.close().catch(() => {});
  });
  return link;
}
