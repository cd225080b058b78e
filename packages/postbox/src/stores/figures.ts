/* Figures in the form that operators read. */

const units = [
  ["d", 86_400_000],
  ["h", 3_600_000],
  ["min", 60_000],
  ["s", 1000],
  ["ms", 1],
] as const;

/** `3 min 20 s`: at most two units. */
export function duration(ms: number): string {
  const whole = Math.max(0, Math.floor(ms));
  const first = units.findIndex(([, unit]) => whole >= unit);
  if (first === -1) return "0 ms";
  let rest = whole;
  const parts: string[] = [];
  for (const [name, unit] of units.slice(first, first + 2)) {
    const count = Math.floor(rest / unit);
    rest -= count * unit;
    if (count > 0 && !(name === "ms" && parts.length > 0)) parts.push(`${count} ${name}`);
  }
  return parts.join(" ");
}

/** `1.5 GiB`. */
export function size(bytes: number): string {
  const names = ["bytes", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let [amount, at] = [bytes, 0];
  for (; amount >= 1024 && at < names.length - 1; at++) amount /= 1024;
  return `${at === 0 ? amount : amount.toFixed(1)} ${names[at]}`;
}

function number(count: number): string {
  return count.toLocaleString("en-US");
}

/** `1 lane`, `2 lanes`. */
export function counted(count: number, noun: string): string {
  return `${number(count)} ${noun}${count === 1 ? "" : "s"}`;
}
