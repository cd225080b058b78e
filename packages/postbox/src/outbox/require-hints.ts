import { ConfigError } from "../errors.js";
import type { Hints, Store } from "../store.js";

/** What the store needs for `hint: true`. */
export function requireHints<Tx>(owner: string, store: Store<Tx>): Hints<Tx> {
  if (store.hints !== undefined) return store.hints;
  throw new ConfigError(
    "option-invalid",
    `${owner}: 'hint' needs a store with a connection to listen on, which this ${store.name} store has not; ` +
      "leave it out: relays look for messages anyway",
    { path: "hint" },
  );
}
