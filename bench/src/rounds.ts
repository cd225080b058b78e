/**
 * Measures all sides in every round, one after the other; every second round reverses the order. So other load on the
 * machine, and what one side leaves behind for the next, affect all sides alike.
 */
export async function alternate<Side extends string, Result>(
  rounds: number,
  sides: Readonly<Record<Side, (round: number) => Promise<Result>>>,
): Promise<Readonly<Record<Side, readonly Result[]>>> {
  const names = Object.keys(sides) as Side[];
  const results = Object.fromEntries(names.map((name) => [name, [] as Result[]])) as Record<Side, Result[]>;
  for (let round = 0; round < rounds; round++) {
    for (const name of round % 2 === 0 ? names : names.toReversed()) {
      results[name].push(await sides[name](round));
    }
  }
  return results;
}
