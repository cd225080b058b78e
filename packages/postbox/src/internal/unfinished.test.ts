import { spawnSync } from "node:child_process";
import { expect, it } from "vitest";

const built = new URL("../../dist/internal/unfinished.js", import.meta.url).href;

function run(program: string) {
  return spawnSync(
    process.execPath,
    ["--input-type=module", "--eval", `import * as unfinished from "${built}";${program}`],
    {
      encoding: "utf8",
    },
  );
}

it("leaves a failed publish into a transaction of one's own to Node.js, which tells that nobody has awaited it", () => {
  const { status, stderr } = run(
    "unfinished.unfinishedIn({}, async () => { throw new Error('the transaction has ended'); });",
  );
  expect(status).toBe(1);
  expect(stderr).toContain("the transaction has ended");
});

it("tells of a publish that fails at the end of a transaction of the store's by rolling that back, and does not end the process", () => {
  const { status, stdout } = run(`
    const tx = {};
    const refused = async () => { await new Promise(setImmediate); throw new Error("refused"); };
    const work = async () => { unfinished.unfinishedIn(tx, refused); };
    await unfinished.withAllFinished(tx, work).catch(({ code, cause }) => console.log(code, cause.message));`);
  expect(stdout).toBe("publish-not-awaited refused\n");
  expect(status).toBe(0);
});

it("leaves one that fails before that to Node.js as well: without its message, the transaction commits", () => {
  const { status, stderr } = run(`
    const tx = {};
    const work = async () => {
      unfinished.unfinishedIn(tx, async () => { throw new Error("refused"); });
      await new Promise(setImmediate);
    };
    await unfinished.withAllFinished(tx, work);`);
  expect(status).toBe(1);
  expect(stderr).toContain("refused");
});
