import { duration } from "./duration.js";
import { count } from "./table.js";
import type { Terminal } from "./terminal.js";

const width = 24;

/** Shows how far a long change is, with its rate and the time left. Only on a terminal. */
export function progressOf(terminal: Terminal, total: number): (done: number) => void {
  const started = performance.now();
  return (done) => {
    const seconds = (performance.now() - started) / 1000;
    const rate = seconds > 0 ? done / seconds : 0;
    const filled = total === 0 ? width : Math.min(width, Math.round((done / total) * width));
    const bar = "█".repeat(filled) + "░".repeat(width - filled);
    const left = rate > 0 && done < total ? `, ${duration(((total - done) / rate) * 1000)} left` : "";
    terminal.progress(`${bar} ${count(done)} of ${count(total)}, ${count(Math.round(rate))}/s${left}`);
  };
}
