/**
 * A signal that is aborted together with another one, or earlier. Abort it when done: until then the other signal
 * refers to it.
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
