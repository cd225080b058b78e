import { EventEmitter, getEventListeners } from "node:events";
import v8 from "node:v8";

/** What a transport could leak of a connection that has ended. */
export interface LeftBehind {
  /** Sockets, timers and the like that keep this process running. */
  readonly open: number;
  /** Live event emitters. Connections and channels are such, even after they have ended. */
  readonly remembered: number;
  /** Listeners of the signal. */
  readonly listening: number;
}

/** The current figures, after a garbage collection. */
export function leftBehind(signal: AbortSignal): LeftBehind {
  return {
    open: process.getActiveResourcesInfo().length,
    remembered: liveObjects?.(EventEmitter, { format: "count" }) ?? 0,
    listening: getEventListeners(signal, "abort").length,
  };
}

/** In Node.js since 20.13, but not in its types yet. */
const liveObjects = (
  v8 as { queryObjects?: (ofClass: typeof EventEmitter, options: { readonly format: "count" }) => number }
).queryObjects;
