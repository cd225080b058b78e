import { type Bar, barText, verdict } from "./bar.js";
import type { Figure } from "./figure.js";

/** One JSON object per line, for programs. */
export function jsonLine(figure: Figure, bar: Bar | undefined): string {
  if ("reason" in figure) {
    const nothing = { value: null, unit: null, ratio: null, against: null, rounds: 0, spread: null };
    return JSON.stringify({ name: figure.name, ...nothing, reason: figure.reason });
  }
  const { name, value, unit, ratio, against, rounds, spread, againstValue } = figure;
  const judged = bar === undefined ? {} : { bar: barText(bar), verdict: verdict(figure, bar) };
  return JSON.stringify({ name, value, unit, ratio, against, rounds, spread, againstValue, ...judged });
}

/** A table, for people. */
export function table(figures: readonly Figure[], bars: Readonly<Record<string, Bar>>): string {
  const header = ["name", "figure", "bar", "", "spread", "ours", "against"];
  const rows = figures.map((figure) => tableRow(figure, bars[figure.name]));
  const cells = rows.filter((row) => row.length > 2);
  const widths = header.map((title, column) => Math.max(title.length, ...cells.map((row) => row[column]?.length ?? 0)));
  const nameWidth = Math.max(...rows.map(([name]) => name?.length ?? 0));
  return [header, ...rows]
    .map((row) => row.map((cell, column) => cell.padEnd(column === 0 ? nameWidth : (widths[column] as number))))
    .map((row) => row.join("  ").trimEnd())
    .join("\n");
}

function tableRow(figure: Figure, bar: Bar | undefined): readonly string[] {
  if ("reason" in figure) return [figure.name, figure.reason];
  const { name, ratio, value, unit, spread, against, againstValue } = figure;
  return [
    name,
    ratio === null ? `${short(value)} ${unit}` : short(ratio),
    bar === undefined ? "" : barText(bar),
    bar === undefined ? "" : verdict(figure, bar),
    spread.map(short).join(" – "),
    ratio === null ? "" : `${short(value)} ${unit}`,
    against === null ? "" : `${against}: ${short(againstValue as number)} ${unit}`,
  ];
}

function short(value: number): string {
  if (value >= 1000) return Math.round(value).toLocaleString("en");
  return value >= 100 ? value.toFixed(0) : value.toFixed(2);
}
