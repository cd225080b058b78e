import type { ChannelModel } from "amqplib";
import { PostboxError, TransportDownError } from "../../errors.js";
import { type ConfirmedPublishing, confirmedPublishing } from "./confirms.js";
import { close, destroy, openConnection, placeOf, type RabbitmqConnectionOptions } from "./connection.js";
import { exchangeExists } from "./topology.js";
import type { Watch } from "./watch.js";

/** A connection with a channel for publishing only. */
export interface Link {
  readonly connection: ChannelModel;
  readonly publishing: ConfirmedPublishing;
  readonly lost: boolean;
  /** Why the broker closed the channel. */
  readonly reason?: { readonly code?: number; readonly message: string };
  /** Which of these exchanges do not exist. Asks once for each that exists. */
  missing(exchanges: Iterable<string>): Promise<ReadonlySet<string>>;
  /** Closes it at once, without waiting for confirms in flight. */
  giveUp(why: string): void;
  /**
   * From now on it closes at once if its broker is blocked, since the caller cannot wait until the broker accepts
   * messages again.
   */
  hurry(): void;
  /** Closes it gracefully, within a short limit. */
  close(): Promise<void>;
}

/** The publisher's link: opened when it is first needed, and opened again after it was lost. */
export interface Links {
  /** The open link. */
  readonly current: Link | undefined;
  /** The open link, or a new one; concurrent calls share it. */
  get(): Promise<Link>;
  /** Applies `hurry` to the open link and to every new one. */
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
    // If it is lost while it is opened, the caller that opens it reports that.
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
      // An open link closes gracefully; one that is being opened is not waited for.
      if (current === undefined) {
        giveUp.abort(new TransportDownError("connect", `the connection to ${place} was closed while it was opened`));
        giveUp = new AbortController();
      }
      const link = await opening?.catch(() => undefined);
      await link?.close();
    },
  };
}

/** `lost` is called once with the reason of its end, unless it was closed. */
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
