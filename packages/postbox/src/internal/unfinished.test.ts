import { expect, it, onTestFinished } from "vitest";
import { unfinishedIn, withAllFinished } from "./unfinished.js";

const soon = () => new Promise((resolve) => setImmediate(resolve));

/** Collects the unhandled rejections that Node.js reports, on which vitest would otherwise fail. */
function unhandled(): string[] {
  const others = process.listeners("unhandledRejection");
  const told: string[] = [];
  process.removeAllListeners("unhandledRejection");
  process.on("unhandledRejection", (reason) => told.push((reason as Error).message));
  onTestFinished(() => {
    process.removeAllListeners("unhandledRejection");
    for (const other of others) process.on("unhandledRejection", other);
  });
  return told;
}

it("leaves a failed publish into the caller's own transaction to Node.js, as an unhandled rejection", async () => {
  const told = unhandled();
  void unfinishedIn({}, () => Promise.reject(new Error("the transaction has ended")));
  await soon();
  expect(told).toEqual(["the transaction has ended"]);
});

it("tells of a publish that fails at the end of a transaction of the store's by rolling that back alone", async () => {
  const told = unhandled();
  const tx = {};
  const late = async () => {
    await soon();
    throw new Error("refused");
  };
  const transaction = withAllFinished(tx, async () => void unfinishedIn(tx, late));
  await expect(transaction).rejects.toMatchObject({ code: "not-awaited", cause: { message: "refused" } });
  await soon();
  expect(told).toEqual([]);
});

it("leaves one that fails before that to Node.js as well: without its message, the transaction commits", async () => {
  const told = unhandled();
  const tx = {};
  await withAllFinished(tx, async () => {
    void unfinishedIn(tx, () => Promise.reject(new Error("refused")));
    await soon();
  });
  expect(told).toEqual(["refused"]);
});

it("forgets the handle with its transaction: a client of a pool may be in one of its user's own next", async () => {
  const tx = {};
  await withAllFinished(tx, async () => {});
  const publishing = new Promise<void>(() => {});
  expect(unfinishedIn(tx, () => publishing)).toBe(publishing);
});
