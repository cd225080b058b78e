import { type Arrival, type Inbox, inboxOf, type Remembered, type RememberOptions, type Row } from "../../store.js";
import { sameOrNot } from "../rows/remembered-ids.js";
import { asideSettlement, holdNames } from "../settle-plan.js";
import type { SqliteAccess } from "./sqlite-access.js";
import { failing, settle } from "./sqlite-box.js";
import type { Connection } from "./sqlite-database.js";
import { type BoxTransaction, messageColumns, messageParameters, valuesOf } from "./sqlite-rows.js";

const nothing = new Uint8Array();

/** The inboxes of all consumers. Only one transaction writes at a time, so no concurrent one has the same message. */
export function sqliteInbox<Tx>(access: SqliteAccess, connectionOf: (tx: Tx) => Connection): Inbox<Tx> {
  const boxOf = (connection: Connection, { consumer }: Pick<Arrival, "consumer">) =>
    access.transactionOn(connection, inboxOf(consumer));

  return {
    async remember(tx, arrival, options) {
      const box = boxOf(connectionOf(tx), arrival);
      return remember(box, arrival, options, true);
    },

    keep: (arrivals, options, signal) =>
      failing("could not store messages of an inbox", async () => {
        const [first] = arrivals;
        if (first === undefined) return [];
        return access.write(
          inboxOf(first.consumer),
          (box) =>
            arrivals.map((arrival) => {
              const found = remember(box, arrival, options, false);
              if (found === "new") box.append([arrival.message]);
              return found;
            }),
          signal,
        );
      }),

    setAside: (arrival, aside, options, signal) =>
      failing("could not set aside a message of an inbox", () =>
        access.write(
          inboxOf(arrival.consumer),
          (box) => {
            const found = remember(box, arrival, options, false);
            const anyway = aside.to === "parked" && aside.anyway === true;
            if (found !== "new" && !anyway) return found;
            const row = box.appended(arrival.message);
            const holds = holdNames(row.message).flatMap((name) => box.hold(row.lane, name, 1) ?? []);
            settle(box, [asideSettlement(row, aside, holds)]);
            return found;
          },
          signal,
        ),
      ),

    async handled(tx, arrival, row, epoch) {
      const box = boxOf(connectionOf(tx), arrival);
      if (!isThere(box, row, epoch)) return false;
      settle(box, [{ row, to: "sent" }]);
      const sql = "UPDATE postbox_handled SET handled_at = ? WHERE box = ? AND remembered_id = ?";
      box.connection.run(sql, box.now, box.box, arrival.id);
      return true;
    },
  };
}

/** Whether the row is there as it was read, in a lane whose epoch is still current. */
function isThere(box: BoxTransaction, { lane, position, message, waiting, turn = 0 }: Row, epoch: number): boolean {
  const found = box.owners().standing([{ lane, epoch }]).size > 0 ? box.at(position) : undefined;
  return (
    found?.status === (waiting ? "waiting" : "pending") &&
    found.message.id === message.id &&
    (!waiting || found.turn === turn)
  );
}

const insert = `INSERT INTO postbox_handled
  (box, remembered_id, hash, since, received_at, handled_at, ${messageColumns})
  VALUES (?, ?, ?, ?, ?, ?, ${messageParameters})`;

function remember(
  box: BoxTransaction,
  arrival: Arrival,
  { retentionMs }: RememberOptions,
  isHandled: boolean,
): Remembered {
  const { connection, now } = box;
  const { id, hash, message, storePayload = false } = arrival;
  const known = connection.first<{ readonly hash: string | null }>(
    "SELECT hash FROM postbox_handled INDEXED BY postbox_remembered WHERE box = ? AND remembered_id = ?",
    box.box,
    id,
  );
  if (known !== undefined) return sameOrNot(known.hash ?? undefined, hash);
  const time = Date.parse(message.time ?? "");
  const forgotten = connection.first<{ readonly forgotten_until: number }>(
    "SELECT forgotten_until FROM postbox_box WHERE number = ?",
    box.box,
  );
  if (time < Math.max(now - retentionMs, Number(forgotten?.forgotten_until))) return "too-old";
  const [, ...values] = valuesOf(storePayload ? message : { ...message, data: nothing });
  const since = Number.isNaN(time) ? now : Math.max(time, now);
  connection.run(insert, box.box, id, hash ?? null, since, now, isHandled ? now : null, ...values);
  return "new";
}
