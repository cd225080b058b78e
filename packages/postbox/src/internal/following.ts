/**
 * A signal that is aborted when another one is, or before. Abort it in the end: until then the other one knows of it.
 */
export interface Following {
  readonly signal: AbortSignal;
  abort(): void;
}

export function following(other: AbortSignal): Following {
  const controller = new AbortController();
  const abort = () => {
    other.removeEventListener("abort", abort);
    controller.abort();
  };
  other.addEventListener("abort", abort, { once: true });
  if (other.aborted) abort();
  return { signal: controller.signal, abort };
}
