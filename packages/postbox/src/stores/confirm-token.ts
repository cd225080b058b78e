import { createHash } from "node:crypto";
import { ConfigError } from "../errors.js";

/**
 * What a dry run has counted. The change touches at most `most` rows, none beyond position `upTo`, and none that
 * reached its status after `until`, in the store's own unit.
 */
export interface ChangeBounds {
  readonly most: number;
  readonly upTo: number;
  readonly until: number;
}

/** What a token confirms. Equal selections have equal texts. */
export interface ConfirmedChange {
  readonly action: string;
  readonly box: string;
  readonly selection: Readonly<Record<string, unknown>>;
}

/**
 * Creates the `confirm` of a dry run. Nothing is stored: the token carries the bounds and a hash that ties them to this
 * change. It guards against mistakes, not against its holder, who may make changes anyway.
 */
export function writeConfirmToken(change: ConfirmedChange, bounds: ChangeBounds): string {
  const { most, upTo, until } = bounds;
  return Buffer.from(JSON.stringify([most, upTo, until, hashOf(change, bounds)])).toString("base64url");
}

/** Reads the bounds from a token. Throws `option-invalid` if the token belongs to another change. */
export function readConfirmToken(token: string, change: ConfirmedChange): ChangeBounds {
  const [most, upTo, until] = partsOf(token);
  const bounds = { most: most as number, upTo: upTo as number, until: until as number };
  const stands = [most, upTo, until].every((part) => Number.isSafeInteger(part) && (part as number) >= 0);
  if (stands && writeConfirmToken(change, bounds) === token) return bounds;
  throw new ConfigError(
    "option-invalid",
    `admin.${change.action}: option 'confirm' is not of a dry run of this action with this selection; ` +
      "make a dry run again, and give its 'confirm' with the very same selection",
    { path: "confirm" },
  );
}

function hashOf({ action, box, selection }: ConfirmedChange, { most, upTo, until }: ChangeBounds): string {
  return createHash("sha256")
    .update(JSON.stringify([action, box, selection, most, upTo, until]))
    .digest("base64url");
}

function partsOf(token: string): readonly unknown[] {
  try {
    const parts: unknown = JSON.parse(Buffer.from(token, "base64url").toString());
    return Array.isArray(parts) ? parts : [];
  } catch {
    return [];
  }
}
