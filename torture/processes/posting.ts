import { createHash } from "node:crypto";
import type { Sighting } from "@postbox/testkit/history";
import { defineEvent, type Message } from "postbox";
import { z } from "zod";

/** The keys come in two halves. Each has an exchange of its own, so that it can have a queue of its own. */
export const halves = ["even", "odd"] as const;
export type Half = (typeof halves)[number];

export const topicOf = (run: string, half: Half): string => `${run}.${half}`;

/** The note of a message that kills each process that handles it. */
export const killerNote = "kills";

const schema = z.object({ account: z.string(), amount: z.number(), text: z.string() });

/** What is published: a posting to an account, which is its key. */
export function postedEvent<H extends Half>(run: string, half: H) {
  const type = `${run}.${half}.Posted` as const;
  return defineEvent({ type, schema, key: ({ account }) => account });
}

/** Of everything that must arrive as it was sent. */
export function digestOf(type: string, note: unknown, data: Uint8Array): string {
  return createHash("sha256").update(`${type}\n${note}\n`).update(data).digest("base64url");
}

export function sightingOf({ id, key, type, headers, data }: Message): Sighting {
  const digest = digestOf(type, headers.note, data);
  return key === undefined ? { id, digest } : { id, key, digest };
}
