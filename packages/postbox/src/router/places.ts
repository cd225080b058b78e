import { PostboxError } from "../errors.js";
import { sleep } from "../internal/runtime.js";
import type { Message } from "../message/message.js";
import { type AboutMessage, aboutMessage } from "../telemetry/events.js";
import type { SessionOptions } from "./session.js";

/** A handler that has run for longer than `slowAfterMs` of its router. */
export interface SlowHandler extends AboutMessage {
  readonly runningMs: number;
}

/**
 * The places in which the handlers of a session run: as many as may run at a time. A handler keeps its place until it
 * has ended, even if a middleware has given up on it.
 */
export interface Places {
  /** Takes a free place. There must be one. */
  take(message: Message, sinceMs: number): number;
  /** The handler in this place starts anew, or, without a time, rests until the next call. */
  restart(place: number, sinceMs?: number): void;
  leave(place: number): void;
  /** The handlers that have run for too long, the oldest first. */
  slow(): readonly SlowHandler[];
  /** Reports each of them once, until the signal is aborted. */
  watch(signal: AbortSignal): Promise<void>;
}

interface Place {
  /** Undefined if the place is free. */
  message: Message | undefined;
  sinceMs: number;
  told: boolean;
}

type PlacesOptions = Pick<SessionOptions, "consumer" | "concurrency" | "slowAfterMs" | "telemetry" | "runtime">;

export function createPlaces({ consumer, concurrency, slowAfterMs, telemetry, runtime }: PlacesOptions): Places {
  const places: Place[] = [];
  const free: number[] = [];

  function slowPlaces(): { readonly place: Place; readonly handler: SlowHandler }[] {
    const now = runtime.monotonic();
    return places.flatMap((place) => {
      const runningMs = now - place.sinceMs;
      if (place.message === undefined || !(runningMs >= slowAfterMs)) return [];
      return [{ place, handler: { ...aboutMessage(place.message), runningMs: Math.floor(runningMs) } }];
    });
  }

  return {
    take(message, sinceMs) {
      const place = free.pop() ?? places.length;
      const found = places[place];
      if (found === undefined) places.push({ message, sinceMs, told: false });
      else {
        found.message = message;
        found.sinceMs = sinceMs;
      }
      return place;
    },
    restart(place, sinceMs = Number.NaN) {
      (places[place] as Place).sinceMs = sinceMs;
    },
    leave(place) {
      const left = places[place] as Place;
      left.message = undefined;
      left.told = false;
      free.push(place);
    },
    slow() {
      return slowPlaces()
        .map(({ handler }) => handler)
        .sort((a, b) => b.runningMs - a.runningMs);
    },
    async watch(signal) {
      while (!signal.aborted) {
        await sleep(runtime, slowAfterMs / 4, signal);
        if (signal.aborted) return;
        const slow = slowPlaces();
        for (const { place, handler } of slow) {
          if (place.told) continue;
          place.told = true;
          const error = slowError(consumer, handler, slow.length, concurrency);
          telemetry({ name: "delivery.slow", consumer, ...handler, error });
        }
      }
    },
  };
}

function slowError(consumer: string, { id, type, runningMs }: SlowHandler, slow: number, of: number): PostboxError {
  const text =
    `handling message ${id} of type ${type} has taken ${Math.round(runningMs / 100) / 10} s and is still running: ` +
    `${slow} of the ${of} messages that ${consumer} handles at a time take that long; ` +
    "give what the handler waits for a time limit, or end it by the middleware timeout(ms); " +
    "if it may take so long, raise 'slowAfterMs'";
  return new PostboxError("handler-slow", text);
}
