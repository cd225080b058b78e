import { EventEmitter, getEventListeners } from "node:events";
import v8 from "node:v8";

/** What a transport could leave behind of a connection that is gone. */
export interface LeftBehind {
  /** Sockets, timers and the like that keep this process busy. */
  readonly open: number;
  /** What somebody still remembers: connections and channels emit events, the dead ones, too. */
  readonly remembered: number;
  /** What listens to the signal. */
  readonly listening: number;
}

/** As of now, without what the next collection of garbage would take. */
export function leftBehind(signal: AbortSignal): LeftBehind {
  return {
    open: process.getActiveResourcesInfo().length,
    remembered: liveObjects?.(EventEmitter, { format: "count" }) ?? 0,
    listening: getEventListeners(signal, "abort").length,
  };
}

/** Of Node.js since 20.13, and not among its types yet. */
const liveObjects = (
  v8 as { queryObjects?: (ofClass: typeof EventEmitter, options: { readonly format: "count" }) => number }
).queryObjects;
