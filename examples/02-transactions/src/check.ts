import { execFile } from "node:child_process";
import { join } from "node:path";
import { promisify } from "node:util";
import { disposable } from "@postbox/testkit/servers";
import pg from "pg";
import { story } from "./story.js";

/** Each program runs on a database of its own and must print the same text. */
const programs = ["pg", "postgres-js", "drizzle", "drizzle-postgres-js", "kysely", "knex", "custom"];

const server = await disposable("postgres");
const admin = new pg.Client(server.url);
await admin.connect();
let failed = false;
try {
  for (const program of programs) {
    const name = `story_${program.replaceAll("-", "_")}`;
    await admin.query(`CREATE DATABASE ${name}`);
    const url = new URL(server.url);
    url.pathname = name;
    const { stdout } = await promisify(execFile)(
      process.execPath,
      [join(import.meta.dirname, `${program}.js`), url.href],
      { timeout: 60_000 },
    );
    const same = stdout === story;
    failed ||= !same;
    console.log(`${same ? "✓" : "✗"} ${program}${same ? "" : `\n${stdout}`}`);
  }
} finally {
  await admin.end();
  await server.stop();
}
console.log(`\n${story}`);
process.exitCode = failed ? 1 : 0;
