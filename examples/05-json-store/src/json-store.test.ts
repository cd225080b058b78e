import { createHash } from "node:crypto";
import { copyFile, mkdir, mkdtemp, readFile, rm, rmdir, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { testMessage } from "@postbox/testkit";
import { inboxSuite, relaySuite, type StoreFeatures, type StoreHarness, storeSuite } from "@postbox/testkit/suites";
import { runtimeWith } from "postbox/store";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { openDatabase } from "./database.js";
import { jsonStore } from "./json-store.js";
import type { JsonTransaction } from "./json-transaction.js";

const features: StoreFeatures = {
  concurrentTransactions: false,
  lateCommits: false,
  migrations: false,
  isolationLevels: true,
  abortsOnError: false,
  foreignTransactions: true,
  processes: false,
};

async function harness(): Promise<StoreHarness<JsonTransaction>> {
  const folder = await mkdtemp(join(tmpdir(), "json-store-"));
  const file = join(folder, "store.json");
  let aheadMs = 0;
  const runtime = runtimeWith({ now: () => Date.now() + aheadMs });
  const database = openDatabase(file, runtime);
  const store = jsonStore({ file });
  // Some tests of the suite need a second box that belongs to a consumer which has run.
  await store.box("inbox/other").release("nobody");
  const names = (tx: Pick<JsonTransaction, "get">) => (tx.get("effects") ?? []) as readonly string[];
  return {
    store,
    another: () => jsonStore({ file }),
    effect: async (tx, name) => tx.set("effects", [...names(tx), name]),
    effects: async () => ((await database.committed()).documents.get("effects") ?? []) as readonly string[],
    async advance(ms) {
      aheadMs += ms;
    },
    now: () => runtime.now(),
    async contents(name) {
      const { pending, wait, holds, scheduled, parked, done } = (await database.committed()).rows.look(name).contents();
      return {
        pending: ids(pending),
        wait: ids(wait),
        holds,
        scheduled: ids(scheduled),
        parked: parked.map(({ message, error }) => ({ id: message.id, error })),
        done: ids(done),
      };
    },
    fingerprint: async () =>
      createHash("sha256")
        .update(await readFile(file).catch(() => ""))
        .digest("hex"),
    impostors: () => [database, file],
    close: () => rm(folder, { recursive: true, force: true }),
  };
}

function ids(messages: readonly { readonly id: string }[]): string[] {
  return messages.map(({ id }) => id);
}

describe("the file", () => {
  let folder: string;
  beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), "json-store-"));
  });
  afterEach(() => rm(folder, { recursive: true, force: true }));

  it("is what the next process finds, whatever a crash has left beside it", async () => {
    const file = join(folder, "store.json");
    const store = jsonStore({ file });
    await store.transaction(async (tx) => {
      tx.set("order", { total: 30 });
      await store.append(tx, "outbox", [testMessage("m")]);
    });
    const copy = join(folder, "copy.json");
    await copyFile(file, copy);
    await writeFile(`${copy}.tmp`, "half a comm");
    const next = jsonStore({ file: copy });
    expect((await next.admin.list()).messages).toMatchObject([{ id: "m", status: "pending" }]);
    expect(await next.transaction(async (tx) => tx.get("order"))).toEqual({ total: 30 });
  });

  it("that cannot be written leaves what was committed, and is written again when it can be", async () => {
    const file = join(folder, "store.json");
    const store = jsonStore({ file });
    const count = (to: number) => store.transaction(async (tx) => tx.set("count", to));
    await count(1);
    await mkdir(`${file}.tmp`);
    const failed = await count(2).catch((error) => error);
    expect(failed).toMatchObject({ code: "store-unavailable" });
    expect(store.isUnavailable(failed)).toBe(true);
    expect(await store.transaction(async (tx) => tx.get("count"))).toBe(1);
    await rmdir(`${file}.tmp`);
    await count(3);
    expect(JSON.parse(await readFile(file, "utf8")).documents).toEqual([["count", 3]]);
  });

  it("that holds no JSON is reported, and left as it is", async () => {
    const file = join(folder, "store.json");
    await writeFile(file, "half a comm");
    await expect(jsonStore({ file }).transaction(async () => {})).rejects.toMatchObject({ code: "store-failed" });
    expect(await readFile(file, "utf8")).toBe("half a comm");
  });
});

const json = { name: "json", features, create: harness };

storeSuite(json);
relaySuite(json);
inboxSuite(json);
