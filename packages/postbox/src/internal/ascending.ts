/** Inserts an item into an ascending list. Efficient if items arrive mostly in order. */
export function insertAscending<T>(list: T[], item: T, rank: (item: T) => number): void {
  let [low, high] = [0, list.length];
  const own = rank(item);
  const last = list[high - 1];
  if (last === undefined || rank(last) <= own) {
    list.push(item);
    return;
  }
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (rank(list[middle] as T) <= own) low = middle + 1;
    else high = middle;
  }
  list.splice(low, 0, item);
}
