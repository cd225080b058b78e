/** Aligns `rows` under `header`, with two spaces between the columns. */
export function table(header: readonly string[], rows: readonly (readonly string[])[]): string {
  const lines = [header, ...rows];
  const widths = header.map((_, column) => Math.max(...lines.map((line) => (line[column] ?? "").length)));
  return lines
    .map((line) =>
      widths
        .map((width, column) => (line[column] ?? "").padEnd(width))
        .join("  ")
        .trimEnd(),
    )
    .join("\n");
}
