import { readFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, expect, it } from "vitest";
import { type PackedCommand, packedCommand } from "./packed-command.js";

const root = join(import.meta.dirname, "../..");
const guide = readFileSync(join(root, "docs/guides/command.md"), "utf8");

let command: PackedCommand;
beforeAll(async () => {
  command = await packedCommand();
});
afterAll(() => command.remove());

/** The words of a line of a shell without expansions. */
const wordsOf = (line: string) =>
  [...line.matchAll(/"([^"]*)"|'([^']*)'|(\S+)/g)].map(([, a, b, c]) => a ?? b ?? c ?? "");

it("every command of the guide is accepted as it stands", async () => {
  const lines = [...guide.matchAll(/```sh\n(.*?)```/gs)].flatMap(([, block]) => (block as string).trim().split("\n"));
  const calls = lines.filter((line) => line.startsWith("postbox ")).map((line) => line.replace(/ [<>] .*$/, ""));
  expect(calls.length).toBeGreaterThan(20);
  for (const call of calls) {
    const [, ...args] = wordsOf(call);
    // A database that does not exist ends each call after its arguments were read.
    const { code, err } = await command.run(args, { env: { POSTBOX_DATABASE_URL: "oracle:" } });
    const isRefused = /no store for URLs with oracle:|there is no module src/.test(err) || code === 0;
    expect([call, isRefused, err]).toEqual([call, true, err]);
  }
});

it("the guide names every command, every flag of the relay with its default, and every exit code", async () => {
  const { out } = await command.run(["--help"]);
  const names = [...out.matchAll(/^ {2}([a-z]+) \[options\]/gm)].map(([, name]) => name as string);
  expect(names.length).toBeGreaterThan(15);
  for (const name of names) expect(guide).toContain(`postbox ${name}`);
  const relay = (await command.run(["relay", "--help"])).out;
  const shared = ["--database", "--schema", "--config", "--json", "--broker", "--help"];
  const flags = [...relay.matchAll(/^ {2}(?:-h, )?(--[a-z-]+(?: <[a-z]+>)?)/gm)].map(([, flag]) => flag as string);
  const own = flags.filter((flag) => !shared.includes(flag.split(" ")[0] as string));
  expect(own.length).toBeGreaterThan(10);
  for (const flag of own) expect(guide).toContain(`| \`${flag}\` |`);
  for (const [, code] of out.slice(out.indexOf("Exit codes:")).matchAll(/\b(\d+) [a-z]/g)) {
    expect(guide).toContain(`| ${code} |`);
  }
});
