import type { AnyProblem } from "postbox/admin";
import type { CommandDefinition } from "../call.js";
import { exitCodes } from "../exit-codes.js";
import { failureOf } from "../failure.js";
import { problemLine } from "../problem-line.js";
import { serverFindings } from "../server-findings.js";

/** Checks the database, the tables, the relays and the broker. */
export const doctor: CommandDefinition<object> = {
  name: "doctor",
  summary: "Check the database, the tables, the relays and the broker",
  description:
    "Checks the tables, the health of every box, and with a broker whether it can be reached. On PostgreSQL, it also " +
    "checks the settings of the server that can lose messages or stall a relay. Each finding says what to do. Exit " +
    "code 7 if there is an error.",
  connects: "database and broker",
  examples: ["postbox doctor", "postbox doctor --broker amqp://localhost --json"],
  async run(call) {
    const { flags, terminal } = call;
    const database = await call.database();
    const findings: AnyProblem[] = [...(await database.store.health()).problems];
    const away = findings.find(({ code }) => code === "unreachable" || code === "store-refused");
    if (away === undefined) findings.unshift(...(await serverFindings(database)));
    findings.push(...(await brokerFindings(call)));
    const errors = findings.filter(({ severity }) => severity === "error").length;
    if (flags.json) terminal.json({ healthy: errors === 0, findings });
    else if (findings.length === 0) terminal.out("Nothing to do.");
    else for (const finding of findings) terminal.out(problemLine(finding));
    if (away !== undefined) return away.code === "unreachable" ? exitCodes.unreachable : exitCodes.refused;
    return errors === 0 ? exitCodes.done : exitCodes.attention;
  },
};

async function brokerFindings(call: Parameters<typeof doctor.run>[0]): Promise<AnyProblem[]> {
  const { silent } = await import("postbox");
  const isGiven = await call.hasBroker();
  if (!isGiven) return [];
  const transport = await call.broker({ telemetry: silent });
  try {
    const limit = AbortSignal.any([call.signal, AbortSignal.timeout(10_000)]);
    await transport.sender().connect?.(limit);
    return [];
  } catch (error) {
    const { text } = failureOf(error);
    return [{ code: "broker-unreachable", severity: "error", text: `the broker cannot be used: ${text}` }];
  }
}
