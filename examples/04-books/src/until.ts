/** Waits until `done` returns true. Only an example ends when all work is done; a service keeps running. */
export async function until(done: () => boolean | Promise<boolean>): Promise<void> {
  while (!(await done())) await new Promise((resolve) => setTimeout(resolve, 20));
}
