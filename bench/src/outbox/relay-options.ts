import { ConfigError, createRelay, type RelayOptions } from "postbox";
import { memoryBroker, memoryStore } from "postbox/memory";

/** Options that this version may or may not have. */
type Wished = Readonly<Record<string, unknown>>;

/** Whether this version of the library has such an option of a relay, and takes this value for it. */
export function relayKnows(option: Wished): boolean {
  return refusal(() => relayWith(option)) === undefined;
}

/** Those of the options that this version has: what it has no option for, it does anyway. */
export function knownRelayOptions(wished: Wished): RelayOptions {
  // Alone, a value may not fit the defaults of the others: that is no reason to leave it out.
  const isKnown = ([name, value]: [string, unknown]) =>
    refusal(() => relayWith({ [name]: value })) !== "option-unknown";
  return Object.fromEntries(Object.entries(wished).filter(isKnown));
}

function relayWith(options: Wished): unknown {
  return createRelay(memoryStore(), memoryBroker().sender(), options as RelayOptions);
}

/** The code of the error that refuses what is created; undefined when nothing does. */
function refusal(create: () => unknown): string | undefined {
  try {
    create();
    return undefined;
  } catch (error) {
    if (error instanceof ConfigError) return error.code;
    throw error;
  }
}
