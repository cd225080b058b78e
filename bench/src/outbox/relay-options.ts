import { ConfigError, createRelay, type RelayOptions } from "postbox";
import { memoryBroker, memoryStore } from "postbox/memory";

/** Options that this version of the library may lack. */
type Wished = Readonly<Record<string, unknown>>;

/** Whether this version of the library has this relay option and accepts its value. */
export function relayKnows(option: Wished): boolean {
  return refusal(() => relayWith(option)) === undefined;
}

/** Returns the options that this version has. A version without an option already behaves as that option asks. */
export function knownRelayOptions(wished: Wished): RelayOptions {
  // A value may contradict the defaults of other options when it is tried alone. Only unknown options are left out.
  const isKnown = ([name, value]: [string, unknown]) =>
    refusal(() => relayWith({ [name]: value })) !== "option-unknown";
  return Object.fromEntries(Object.entries(wished).filter(isKnown));
}

function relayWith(options: Wished): unknown {
  return createRelay(memoryStore(), memoryBroker().sender(), options as RelayOptions);
}

/** Returns the code of the ConfigError that `create` throws, or undefined if it throws none. */
function refusal(create: () => unknown): string | undefined {
  try {
    create();
    return undefined;
  } catch (error) {
    if (error instanceof ConfigError) return error.code;
    throw error;
  }
}
