import type { Message } from "postbox";
import { describe, expect } from "vitest";
import { testMessage } from "../messages.js";
import { outbox } from "./box-access.js";
import { oneOfEach, operatedBox } from "./operated-box.js";
import type { StoreFact } from "./store-facts.js";

/** Text with a special meaning in databases, languages and encodings. None of it is in what the facts store. */
const corpus: readonly string[] = [
  "'",
  '"',
  "''",
  "' OR '1'='1",
  "'; DROP TABLE postbox.outbox_pending; --",
  '"; DROP SCHEMA postbox CASCADE; --',
  "') OR 1=1 --",
  "$$",
  "$1",
  "$postbox$",
  "%",
  "_",
  "%%%",
  "\\",
  "\\'",
  "\\\\%",
  "{}",
  "{a,b}",
  "NULL",
  "infinity",
  "0",
  "*",
  "  ",
  "\t\r\n",
  "\0",
  "a\0b",
  "\u0001",
  "\u0001waiting",
  "\ud800",
  "\udc00\ud800",
  "\ufffe",
  "é\u0301ß漢字🙈\u202e",
  "__proto__",
  "constructor",
  "toString",
  "hasOwnProperty",
  "x".repeat(100_000),
  "🙈".repeat(5_000),
];

const textFilters = ["type", "topic", "key", "source", "correlationId", "error"] as const;

/** Text from an operator is only text: it matches nothing, or is rejected with a code, and nothing changes. */
export function hostileInputFacts<Tx>(fact: StoreFact<Tx>): void {
  /** The answer of a call, or the code of its error. */
  const outcome = async <R>(call: Promise<R>): Promise<R | { readonly code: string }> =>
    call.catch((error: { readonly code?: string }) => {
      if (error.code === "option-invalid" || error.code === "option-unknown") return { code: error.code };
      throw error;
    });
  const refused = { code: "option-invalid" };

  /** All harmless answers to hostile text. */
  const harmless = (answer: unknown) => {
    if (typeof answer !== "object" || answer === null) return answer === false;
    if (Array.isArray(answer)) return answer.length === 0;
    if ("code" in answer) return true;
    if ("messages" in answer) return Array.isArray(answer.messages) && answer.messages.length === 0;
    return "count" in answer && answer.count === 0;
  };

  describe("hostile text", () => {
    fact("in a filter finds nothing", async (harness) => {
      const { admin } = harness.store;
      await oneOfEach(harness);
      const before = await harness.fingerprint();
      for (const text of corpus) {
        const answers = [
          ...textFilters.map((name) => admin.list({ [name]: text })),
          ...textFilters.map((name) => admin.dryRun("discard", { [name]: text, status: "pending" })),
          admin.list({ ids: [text] }),
          admin.list({ status: text as never }),
          admin.list({ after: text }),
          admin.get(text),
          admin.dryRun(text as never, {}),
        ].map((call) => outcome<unknown>(call));
        for (const answer of await Promise.all(answers)) {
          expect(harmless(answer), `${JSON.stringify(text.slice(0, 50))} came to ${JSON.stringify(answer)}`).toBe(true);
        }
      }
      expect(await harness.fingerprint()).toBe(before);
    });

    fact("in a selection changes nothing", async (harness) => {
      const { admin } = harness.store;
      await oneOfEach(harness);
      const before = await harness.fingerprint();
      for (const text of corpus) {
        const by = { by: "ann" };
        const answers = [
          admin.retry({ ids: [text] }, by),
          admin.discard({ ids: [text], status: "pending" }, by),
          admin.replay({ ids: [text] }, by),
          admin.release(text, by),
          admin.retry({}, { ...by, confirm: text }),
          admin.discard({ status: "waiting" }, { ...by, confirm: text }),
          admin.replay({ ids: ["done"] }, { ...by, confirm: text }),
          admin.discard({ ids: ["parked"], status: text as never }, by),
          ...textFilters.map((name) => admin.discard({ ids: ["parked", "pending"], [name]: text }, by)),
        ].map((call) => outcome<unknown>(call));
        for (const answer of await Promise.all(answers)) {
          expect(harmless(answer), `${JSON.stringify(text.slice(0, 50))} came to ${JSON.stringify(answer)}`).toBe(true);
        }
      }
      expect(await harness.fingerprint()).toBe(before);
    });

    fact("as a box is rejected", async (harness) => {
      const { admin } = harness.store;
      await oneOfEach(harness);
      const before = await harness.fingerprint();
      const by = { by: "ann" };
      for (const box of corpus) {
        const calls: readonly Promise<unknown>[] = [
          admin.stats({ box }),
          admin.list({ box }),
          admin.get("parked", { box }),
          admin.audit({ box }),
          admin.retry({ ids: ["parked"], box }, by),
          admin.discard({ ids: ["parked"], box }, by),
          admin.replay({ ids: ["done"], box }, by),
          admin.dryRun("retry", { box }),
          admin.pause({ ...by, box }),
          admin.resume({ ...by, box }),
          admin.release("k", { ...by, box }),
          harness.store.purge({ retentionMs: 0, box }),
        ];
        for (const answer of await Promise.all(calls.map(outcome))) expect(answer).toEqual(refused);
      }
      expect(await harness.fingerprint()).toBe(before);
    });

    fact("as operator and reason is in the audit without control characters, or rejected", async (harness) => {
      const { admin } = harness.store;
      const { park } = await operatedBox(harness);
      let parked = 0;
      for (const text of corpus) {
        const id = `m-${parked++}`;
        await park("never", testMessage(id));
        const answer = await outcome(admin.retry({ ids: [id] }, { by: text, reason: text }));
        const [entry] = await admin.audit({ limit: 1 });
        if ("code" in answer) {
          expect(entry?.ids ?? []).not.toContain(id);
          expect((await admin.get(id)).map(({ status }) => status)).toEqual(["parked"]);
        } else {
          const shown = text.replace(/\p{Cc}/gu, " ");
          expect(entry).toMatchObject({ action: "retry", by: shown, reason: shown, ids: [id] });
        }
      }
      for (const text of ["'; DROP TABLE x; --", "%", "漢字🙈", "__proto__"]) {
        await admin.pause({ by: text });
        expect((await admin.audit({ limit: 1 }))[0]?.by).toBe(text);
        await admin.resume({ by: text });
      }
    });

    fact("that is stored is found by itself, and by no similar text", async (harness) => {
      const { admin } = harness.store;
      const { park } = await operatedBox(harness);
      const texts = [
        "%",
        "_",
        "a%b",
        "a_b",
        "axb",
        "a\\b",
        "\\",
        "'",
        "''",
        "$1",
        "__proto__",
        "constructor",
        "é",
        "É",
      ];
      const messages: Message[] = texts.map((text, index) =>
        testMessage(`m-${index}`, { key: text, topic: text, source: text, extensions: { correlationid: text } }),
      );
      for (const [index, message] of messages.entries()) await park(`<${texts[index]}>`, message);
      for (const [index, text] of texts.entries()) {
        for (const name of ["key", "topic", "source", "correlationId"] as const) {
          const found = await admin.list({ [name]: text });
          expect(
            found.messages.map(({ id }) => id),
            `${name} ${text}`,
          ).toEqual([`m-${index}`]);
        }
        const found = await admin.list({ error: `<${text}>` });
        expect(
          found.messages.map(({ id }) => id),
          `error ${text}`,
        ).toEqual([`m-${index}`]);
      }
      const { topics } = await admin.stats();
      expect(topics.map(({ topic }) => topic).sort()).toEqual([...texts].sort());
      expect((await harness.contents(outbox)).parked).toHaveLength(texts.length);
    });

    fact("and values that are no text are rejected everywhere", async (harness) => {
      const { admin } = harness.store;
      await oneOfEach(harness);
      const before = await harness.fingerprint();
      const values: readonly unknown[] = [null, 7, Number.NaN, true, {}, [], ["x", 1], () => "x", Symbol("x"), 1n];
      const by = { by: "ann" };
      for (const value of values) {
        const wrong = value as never;
        const calls: readonly Promise<unknown>[] = [
          ...textFilters.map((name) => admin.list({ [name]: wrong })),
          admin.list({ ids: [wrong] }),
          admin.list({ limit: typeof value === "number" ? -1 : wrong }),
          admin.list({ after: wrong }),
          admin.list({ createdFrom: wrong }),
          admin.get(wrong),
          admin.audit({ before: typeof value === "number" ? -1 : wrong }),
          admin.retry({ ids: ["parked"] }, { by: wrong }),
          admin.retry({ ids: ["parked"] }, { ...by, reason: wrong }),
          admin.retry({}, { ...by, confirm: wrong }),
          admin.retry(
            typeof value === "object" && !Array.isArray(value) && value !== null ? ({ ids: 7 } as never) : wrong,
            by,
          ),
          admin.discard({ ids: ["parked"], status: wrong }, by),
          admin.replay({ ids: ["done"] }, { ...by, perSecond: typeof value === "number" ? 0 : wrong }),
          admin.release(wrong, by),
          admin.pause({ by: wrong }),
          admin.stats({ box: wrong }),
        ];
        for (const answer of await Promise.all(calls.map(outcome))) expect(answer, String(value)).toEqual(refused);
      }
      expect(await harness.fingerprint()).toBe(before);
    });
  });
}
