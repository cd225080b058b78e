import type { ClientBase, Pool } from "pg";

/** The business write of a transaction, without any message. */
export async function businessInsert(client: ClientBase): Promise<void> {
  await client.query("INSERT INTO public.business (note) VALUES ($1)", ["an order"]);
}

/** Creates the table of `businessInsert`, or empties it. */
export async function emptyBusiness(pool: Pool): Promise<void> {
  await pool.query("CREATE TABLE IF NOT EXISTS public.business (id bigserial PRIMARY KEY, note text)");
  await pool.query("TRUNCATE public.business");
}

export async function businessRows(pool: Pool): Promise<number> {
  const { rows } = await pool.query("SELECT count(*) AS count FROM public.business");
  return Number(rows[0].count);
}
