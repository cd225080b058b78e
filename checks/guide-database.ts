import { randomBytes } from "node:crypto";
import { mkdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import pg from "pg";
import { afterAll } from "vitest";
import { compile, root } from "./snippets.js";

export interface Prepared {
  readonly folder: string;
  readonly url: string;
  /** Imports one of the files. */
  load(file: string): Promise<Record<string, never>>;
}

/**
 * Returns a function that compiles the files of a guide into a folder of their own. Each folder gets an empty database,
 * passed as `DATABASE_URL`. Folders and databases are removed after the tests.
 */
export function guideDatabases(serverUrl: string): (files: Readonly<Record<string, string>>) => Promise<Prepared> {
  const admin = new pg.Pool({ connectionString: serverUrl, max: 1 });
  const made: string[] = [];
  afterAll(async () => {
    for (const name of made) {
      rmSync(join(root, ".tmp", name), { recursive: true, force: true });
      await admin.query(`drop database if exists ${name} with (force)`);
    }
    await admin.end();
  });
  return async (files) => {
    const name = `guide_${randomBytes(6).toString("hex")}`;
    const folder = join(root, ".tmp", name);
    mkdirSync(folder, { recursive: true });
    made.push(name);
    await admin.query(`create database ${name}`);
    await compile(folder, files);
    const url = new URL(serverUrl);
    url.pathname = name;
    process.env.DATABASE_URL = url.href;
    return { folder, url: url.href, load: (file) => import(join(folder, file)) };
  };
}
