/**
 * Whether `promise` has settled by the time `later` has. Start `later` after it, on the same path, so that it ends only
 * when `promise` would have ended as well. Then a promise that has not settled waits for something else.
 */
export async function settlesBefore(promise: Promise<unknown>, later: Promise<unknown>): Promise<boolean> {
  let settled = false;
  const end = () => {
    settled = true;
  };
  promise.then(end, end);
  await later;
  return settled;
}
