import { ConfigError, createOutbox, createRelay, type OutboxOptions, type RelayOptions } from "postbox";
import { memoryBroker, memoryStore } from "postbox/memory";

/** Options that this version may or may not have. */
type Wished = Readonly<Record<string, unknown>>;

/** Whether this version of the library has such an option of a relay, and takes this value for it. */
export function relayKnows(option: Wished): boolean {
  return isKnown(() => createRelay(memoryStore(), memoryBroker().sender(), option as RelayOptions));
}

/** Whether this version of the library has such an option of an outbox. */
export function outboxKnows(option: Wished): boolean {
  return isKnown(() => createOutbox(memoryStore(), { source: "/bench", ...option } as OutboxOptions));
}

/** Those of the options that this version has: what it has no option for, it does anyway. */
export function knownRelayOptions(wished: Wished): RelayOptions {
  return Object.fromEntries(Object.entries(wished).filter(([name, value]) => relayKnows({ [name]: value })));
}

function isKnown(create: () => unknown): boolean {
  try {
    create();
    return true;
  } catch (error) {
    if (error instanceof ConfigError && (error.code === "option-unknown" || error.code === "option-invalid"))
      return false;
    throw error;
  }
}
