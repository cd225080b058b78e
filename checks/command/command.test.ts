import { execFileSync } from "node:child_process";
import { randomBytes } from "node:crypto";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { describeOn, describeOnEach } from "@postbox/testkit/servers";
import { createPool } from "mysql2/promise";
import pg from "pg";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type PackedCommand, packedCommand } from "./packed-command.js";

let command: PackedCommand;
beforeAll(async () => {
  command = await packedCommand();
});
afterAll(() => command?.remove());

const commands = [
  ...["migrate", "relay", "purge", "doctor", "status", "list", "show", "failed", "stuck", "parked", "held", "audit"],
  ...["retry", "discard", "release", "replay", "pause", "resume", "publish", "events", "completion"],
];

/** Runs a command that must succeed, and returns what it writes as JSON. */
async function jsonOf(args: readonly string[], env: Record<string, string>, input = "") {
  const { code, out, err } = await command.run([...args, "--json"], { env, input });
  if (code !== 0) throw new Error(`${args.join(" ")} ended with ${code}: ${err}`);
  return JSON.parse(out);
}

describe("the command", () => {
  it("lists its commands, and each explains itself", async () => {
    await expect((await command.run(["--help"])).out).toMatchFileSnapshot("help/postbox.txt");
    for (const name of commands) {
      const { code, out, err } = await command.run([name, "--help"]);
      expect([code, err]).toEqual([0, ""]);
      await expect(out).toMatchFileSnapshot(`help/${name}.txt`);
    }
  });

  it("tells its version", async () => {
    expect((await command.run(["--version"])).out).toMatch(/^\d+\.\d+\.\d+\n$/);
  });

  it.each([
    [["lst"], "unknown command 'lst'\n(Did you mean list?)"],
    [["list", "--bogus"], "unknown option '--bogus'"],
    [["list", "--limit", "x"], "Give a whole number."],
    [["list", "--created-from", "yesterday"], "Give a time in ISO 8601"],
    [["list", "--status", "lost"], "Give one or several of pending"],
    [["purge", "--older-than", "7"], "Give a number with its unit"],
    [["purge"], "required option '--older-than <duration>' not specified"],
    [["list", "--box", "a", "--consumer", "b"], "cannot be used with option"],
    [["list"], "no database is given"],
    [["list", "--database", "oracle://ann:canary@host/db"], "no store for URLs with oracle:"],
    [["relay", "--database", "memory:"], "no broker is given"],
    [["retry", "--database", "memory:"], "this selects nothing"],
    [["publish", "--database", "memory:"], "give the type of the message, or --lines"],
    [["publish", "a.b", "{", "--database", "memory:"], "the data is no JSON"],
    [["list", "--config", "nowhere.ts"], "there is no configuration nowhere.ts"],
    [["completion", "tcsh"], "there is no completion for 'tcsh'"],
    [["events", "nowhere.ts"], "there is no module nowhere.ts"],
  ])("refuses %j with one line, without a stack", async (args, text) => {
    const { code, out, err } = await command.run(args);
    expect([code, out]).toEqual([2, ""]);
    expect(err).toContain(text);
    expect(err).not.toMatch(/canary|^ +at /m);
    expect(err.trim().split("\n").length).toBeLessThanOrEqual(2);
  });

  it("says that a server is unreachable, without its password", async () => {
    const url = "postgres://ann:canary@127.0.0.1:1/shop";
    for (const name of ["migrate", "list", "status", "doctor", "audit", "migrate --check"]) {
      const { code, out, err } = await command.run([...name.split(" "), "--database", url]);
      expect([name, code]).toEqual([name, 3]);
      expect(out + err).toMatch(/ECONNREFUSED/);
      expect(out + err).not.toMatch(/canary|^ +at /m);
    }
  });

  it("waits for a database as long as it is told", async () => {
    const started = performance.now();
    const args = ["migrate", "--wait", "1200ms", "--database", "postgres://ann@127.0.0.1:1/shop"];
    expect((await command.run(args)).code).toBe(3);
    // It cannot have tried less than twice, half a second apart.
    expect(performance.now() - started).toBeGreaterThan(500);
  });

  it("writes the documents of a catalog in TypeScript", async () => {
    const catalog = `import { defineEvent } from "postbox";
      import { defineCatalog } from "postbox/catalog";
      const validate = (value: unknown) => ({ value });
      const anything = { "~standard": { version: 1 as const, vendor: "own", validate } };
      const Placed = defineEvent({ type: "shop.Placed", schema: anything, jsonSchema: { type: "object" } });
      export const catalog = defineCatalog([Placed]);`;
    writeFileSync(join(command.folder, "catalog.ts"), catalog);
    const { code, out, err } = await command.run(["events", "catalog.ts", "--title", "Shop"]);
    expect([code, err]).toEqual([0, ""]);
    expect(JSON.parse(out)).toMatchObject({ asyncapi: "3.0.0", info: { title: "Shop", version: "1.0.0" } });
    const schema = await command.run(["events", "catalog.ts", "--format", "json-schema"]);
    expect(Object.keys(JSON.parse(schema.out).$defs)).toEqual(["shop.Placed"]);
    expect((await command.run(["events", "catalog.ts", "--format", "list"])).out).toContain("shop.Placed");
    writeFileSync(join(command.folder, "none.ts"), "export const a = 1;");
    expect((await command.run(["events", "none.ts"])).err).toContain("exports no catalog 'catalog'");
  });

  it("completes in bash", async () => {
    const { out } = await command.run(["completion", "bash"]);
    const script = `${out}\nCOMP_WORDS=(postbox ret); COMP_CWORD=1; _postbox; echo "\${COMPREPLY[@]}"
      COMP_WORDS=(postbox retry --sta); COMP_CWORD=2; _postbox; echo "\${COMPREPLY[@]}"
      COMP_WORDS=(postbox retry --status pa); COMP_CWORD=3; _postbox; echo "\${COMPREPLY[@]}"`;
    expect(execFileSync("bash", ["-c", script], { encoding: "utf8" })).toBe("retry\n--status\nparked\n");
    for (const shell of ["zsh", "fish"]) {
      const { code, out: other } = await command.run(["completion", shell]);
      expect([code, commands.every((name) => other.includes(name))]).toEqual([0, true]);
    }
  });
});

/** What every database has to do. */
function onDatabase(envOf: () => Record<string, string>): void {
  it("sets up, publishes, shows and changes", async () => {
    const env = envOf();
    const run = async (...args: string[]) => (await command.run(args, { env })).code;
    const before = await command.run(["list"], { env });
    expect([before.code, before.err]).toEqual([5, expect.stringContaining("postbox migrate")]);
    expect(await run("migrate", "--check")).toBe(7);
    expect(await run("migrate")).toBe(0);
    expect(await run("migrate")).toBe(0);
    expect(await run("migrate", "--check")).toBe(0);

    const data = { orderId: "1", note: "a \u001b[2J b" };
    const { id } = await jsonOf(["publish", "shop.orders.v1.Placed", JSON.stringify(data), "--key", "k1"], env);
    const { messages } = await jsonOf(["list"], env);
    expect(messages).toMatchObject([{ id, status: "pending", type: "shop.orders.v1.Placed", topic: "shop.orders.v1" }]);
    const [shown] = await jsonOf(["show", id, "--data"], env);
    expect(JSON.parse(shown.message.data)).toEqual(data);
    const { out } = await command.run(["show", id, "--data"], { env });
    expect([out.includes("\\u001b[2J b"), out.includes("\u001b")]).toEqual([true, false]);
    expect((await command.run(["show", id], { env })).out).not.toContain("orderId");
    expect(await run("show", "nothing")).toBe(6);
    expect(await run("release", "nothing", "--yes")).toBe(6);

    const discard = ["discard", "--id", id, "--status", "pending"];
    expect(await jsonOf([...discard, "--dry-run"], env)).toMatchObject({ matched: 1, changed: 0 });
    expect((await command.run(discard, { env })).err).toContain("pass --yes");
    expect((await jsonOf(["list"], env)).messages).toHaveLength(1);
    const changed = await jsonOf([...discard, "--yes", "--by", "ann", "--reason", "a test"], env);
    expect(changed).toEqual({ action: "discard", matched: 1, more: false, changed: 1 });
    expect(await jsonOf(["audit"], env)).toMatchObject([
      { action: "discard", by: "ann", reason: "a test", count: 1, ids: [id] },
    ]);

    expect(await run("pause", "--yes", "--by", "ann")).toBe(0);
    const status = await jsonOf(["status"], env);
    expect(status.boxes).toMatchObject([{ box: "outbox", paused: true, pending: { count: 0 } }]);
    expect(await jsonOf(["resume", "--yes"], env)).toEqual({ action: "resume", box: "outbox", changed: true });
    expect(await run("purge", "--older-than", "1d", "--yes")).toBe(0);
    expect(await run("doctor")).toBeLessThanOrEqual(7);
  });

  it("publishes lines in batches, and says after which one to go on", async () => {
    const env = envOf();
    expect((await command.run(["migrate"], { env })).code).toBe(0);
    const line = (n: number) => JSON.stringify({ type: "shop.Counted", data: { n }, key: `line-${n}` });
    const lines = Array.from({ length: 1200 }, (_, n) => line(n));
    expect(await jsonOf(["publish", "--lines"], env, `${lines.join("\n")}\n`)).toEqual({ published: 1200 });
    const broken = [...lines.slice(0, 700), '{"type":"shop.Counted"}', ...lines.slice(700)];
    const { code, err } = await command.run(["publish", "--lines"], { env, input: broken.join("\n") });
    expect([code, err]).toEqual([2, expect.stringContaining("500 messages were published before this")]);
    const status = await jsonOf(["status"], env);
    expect(status.boxes[0].pending.count).toBe(1700);
    const dry = await jsonOf(["discard", "--type", "shop.Counted", "--status", "pending", "--dry-run"], env);
    expect(dry).toMatchObject({ matched: 1700 });
    const all = ["discard", "--type", "shop.Counted", "--status", "pending", "--yes"];
    expect(await jsonOf(all, env)).toMatchObject({ matched: 1700, changed: 1700 });
  });
}

describeOn({ title: "SQLite" }, () => {
  onDatabase(() => ({ POSTBOX_DATABASE_URL: `sqlite:${join(command.folder, "shop.db")}` }));
});

describeOnEach("mariadb", ({ url }) => {
  const database = `command_${randomBytes(6).toString("hex")}`;
  const own = new URL(url);
  own.pathname = `/${database}`;
  const pool = createPool({ uri: url, connectionLimit: 1 });
  beforeAll(async () => void (await pool.query(`CREATE DATABASE ${database}`)));
  afterAll(async () => {
    await pool.query(`DROP DATABASE ${database}`);
    await pool.end();
  });

  onDatabase(() => ({ POSTBOX_DATABASE_URL: own.href }));

  it("refuses a user without rights, and a database that does not exist", async () => {
    const [stranger, missing] = [new URL(own), new URL(own)];
    stranger.username = "nobody_here";
    stranger.password = "canary";
    missing.pathname = "/no_such_database";
    for (const refused of [stranger, missing]) {
      const { code, out, err } = await command.run(["list", "--database", refused.href]);
      expect([code, /canary|^ +at /m.test(out + err)]).toEqual([4, false]);
    }
  });
});

describeOnEach("postgres", ({ url }) => {
  const schema = `command_${randomBytes(6).toString("hex")}`;
  const env = { POSTBOX_DATABASE_URL: url, POSTBOX_SCHEMA: schema };
  const pool = new pg.Pool({ connectionString: url, max: 1 });
  afterAll(async () => {
    await pool.query(`DROP SCHEMA IF EXISTS ${schema} CASCADE`);
    await pool.end();
  });

  onDatabase(() => env);

  it("reads a configuration in TypeScript; variables win over it, and flags over both", async () => {
    const config = `import { defineConfig } from "@postbox/cli";
      const database: string = ${JSON.stringify(url)};
      export default defineConfig({ database, schema: "nothing_here" });`;
    writeFileSync(join(command.folder, "own.config.ts"), config);
    const args = ["migrate", "--check", "--config", "own.config.ts"];
    expect((await command.run(args)).code).toBe(7);
    expect((await command.run(args, { env: { POSTBOX_SCHEMA: schema } })).code).toBe(0);
    const flags = [...args, "--schema", "nothing_there"];
    expect((await command.run(flags, { env: { POSTBOX_SCHEMA: schema } })).code).toBe(7);
    writeFileSync(join(command.folder, "wrong.config.mjs"), "export default { databse: 1 }");
    expect((await command.run(["list", "--config", "wrong.config.mjs"])).err).toContain("unknown option 'databse'");
  });

  it("writes the migration for other migrators", async () => {
    const { code, out } = await command.run(["migrate", "--print", "postgres", "--schema", schema]);
    expect([code, out.includes(`"${schema}"`)]).toEqual([0, true]);
    await pool.query(out);
  });

  it("refuses a database that does not exist, and a schema that is newer", async () => {
    const other = new URL(url);
    other.pathname = "/no_such_database";
    for (const name of ["list", "migrate", "status", "doctor"]) {
      const { code, out, err } = await command.run([name, "--database", other.href]);
      expect([name, code, (out + err).includes("no_such_database")]).toEqual([name, 4, true]);
    }
    await command.run(["migrate"], { env });
    await pool.query(`INSERT INTO ${schema}.migration (version) VALUES (999)`);
    const { code, err } = await command.run(["list"], { env });
    expect([code, err]).toEqual([5, expect.stringContaining("newer")]);
    await pool.query(`DELETE FROM ${schema}.migration WHERE version = 999`);
    expect((await command.run(["migrate"], { env })).code).toBe(0);
  });
});
