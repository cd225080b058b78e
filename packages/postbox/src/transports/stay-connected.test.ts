import { manualRuntime } from "@postbox/testkit";
import { expect, it } from "vitest";
import { ConfigError, PostboxError } from "../errors.js";
import { stayConnected } from "./stay-connected.js";

/** Runs one connection after the other, each as `runs` defines, and records the pauses between them. */
async function connections(runs: readonly ((attempt: { ready(): void; lost(error: Error): void }) => void)[]) {
  const runtime = manualRuntime();
  const stop = new AbortController();
  const told: { readonly code: string; readonly retryInMs: number | undefined }[] = [];
  let run = 0;
  const staying = stayConnected(
    {
      backoff: (failures) => failures * 10,
      runtime: { ...runtime, schedule: afterThis },
      lost: (error, retryInMs) => told.push({ code: error.code, retryInMs }),
    },
    stop.signal,
    async (attempt) => {
      const next = runs[run++];
      if (next === undefined) stop.abort();
      next?.(attempt);
    },
  );
  return { staying, told, runtime };
}

/** Runs the task without a pause. */
function afterThis(task: () => void): () => void {
  setImmediate(task);
  return () => {};
}

const fails = () => {
  throw new Error("refused");
};

it("waits longer with each failure in a row", async () => {
  const { staying, told } = await connections([fails, fails, fails]);
  await staying;
  expect(told.map(({ retryInMs }) => retryInMs)).toEqual([10, 20, 30]);
});

it("reports a loss once, at once, although the run ends later", async () => {
  const { staying, told } = await connections([
    ({ lost }) => {
      lost(new PostboxError("transport-down", "the socket closed"));
      throw new Error("and then the channel");
    },
  ]);
  await staying;
  expect(told).toEqual([{ code: "transport-down", retryInMs: 10 }]);
});

it("ends at what no retry can mend", async () => {
  const refused = new ConfigError("transport-refused", "no such user");
  const { staying, told } = await connections([
    () => {
      throw refused;
    },
  ]);
  await expect(staying).rejects.toBe(refused);
  expect(told).toEqual([{ code: "transport-refused", retryInMs: undefined }]);
});

it("retries refused credentials that were accepted before, as while a password is changed", async () => {
  const refuses = () => {
    throw new ConfigError("transport-refused", "the password is being changed");
  };
  const ends = ({ ready }: { ready(): void }) => {
    ready();
    throw new PostboxError("transport-down", "closed");
  };
  const { staying, told } = await connections([ends, refuses, refuses, ends]);
  await staying;
  expect(told.map(({ code }) => code)).toEqual([
    "transport-down",
    "transport-refused",
    "transport-refused",
    "transport-down",
  ]);
  expect(told.every(({ retryInMs }) => retryInMs !== undefined)).toBe(true);
  const missing = new ConfigError("topology-missing", "no queue");
  const other = await connections([
    ends,
    () => {
      throw missing;
    },
  ]);
  await expect(other.staying).rejects.toBe(missing);
});
