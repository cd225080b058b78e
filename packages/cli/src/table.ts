import { plain } from "./plain-text.js";

export interface Column<Row> {
  readonly title: string;
  readonly of: (row: Row) => string;
  /** Numbers stand to the right. Defaults to left. */
  readonly right?: boolean;
}

/**
 * Rows as aligned lines, with a line of titles above. Cells are made safe for a terminal. With `width`, the last column
 * is cut so that a line fits.
 */
export function table<Row>(columns: readonly Column<Row>[], rows: readonly Row[], width?: number): string[] {
  const cells = [columns.map(({ title }) => title), ...rows.map((row) => columns.map(({ of }) => plain(of(row))))];
  const widths = columns.map((_, at) => Math.max(...cells.map((line) => (line[at] as string).length)));
  return cells.map((line) => {
    const padded = line.map((cell, at) => {
      const { right } = columns[at] as Column<Row>;
      return right ? cell.padStart(widths[at] as number) : cell.padEnd(widths[at] as number);
    });
    const text = padded.join("  ").trimEnd();
    return width !== undefined && text.length > width ? `${text.slice(0, Math.max(1, width - 1))}…` : text;
  });
}

/** A number with separators, as in 12,345. */
export function count(number: number): string {
  return number.toLocaleString("en-US");
}
