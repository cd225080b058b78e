import { catalogue } from "./catalogue.js";
import { addressOf, type Service } from "./service.js";

/** The result of looking for a service at its address. */
export type Finding = FoundService | MissingService;

/** A server that was found or started. */
export interface FoundService {
  readonly service: Service;
  readonly url: string;
  readonly version: string;
}

/** A server that was not found, and the reason. */
export interface MissingService {
  readonly service: Service;
  readonly url: string;
  /** Why it cannot be used, as text. */
  readonly missing: string;
}

/**
 * Finds the services of the catalogue that answer. Starts nothing, never rejects, and takes a few seconds at most.
 *
 * @example
 * ```ts
 * for (const finding of await findServices()) console.log(finding.service);
 * ```
 */
export function findServices(environment: NodeJS.ProcessEnv = process.env): Promise<Finding[]> {
  return Promise.all(catalogue.map((service) => findService(service, environment)));
}

/** The same for one service. */
export async function findService(service: Service, environment: NodeJS.ProcessEnv): Promise<Finding> {
  const url = addressOf(service, environment);
  try {
    return { service, url, version: await service.probe(url) };
  } catch (error) {
    return { service, url, missing: textOf(error) };
  }
}

function textOf(error: unknown): string {
  // A host name with two addresses fails with one error for each, and without a text of its own.
  if (error instanceof AggregateError && error.errors.length > 0) return textOf(error.errors[0]);
  return error instanceof Error ? error.message : String(error);
}
