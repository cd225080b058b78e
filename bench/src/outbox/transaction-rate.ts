import type { PoolClient } from "pg";
import type { Box } from "./box.js";

const connections = 10;

/** Transactions per second of 10 connections that each run one after the other, for a while. */
export async function transactionRate(
  box: Box,
  forMs: number,
  transaction: (client: PoolClient) => Promise<void>,
): Promise<number> {
  await box.empty();
  await box.pool.query("CREATE TABLE IF NOT EXISTS public.business (id bigserial PRIMARY KEY, note text); CHECKPOINT");
  await box.pool.query("TRUNCATE public.business");
  let done = 0;
  const started = performance.now();
  const worker = async () => {
    const client = await box.pool.connect();
    try {
      for (; performance.now() - started < forMs; done++) await transaction(client);
    } finally {
      client.release();
    }
  };
  await Promise.all(Array.from({ length: connections }, worker));
  return done / ((performance.now() - started) / 1000);
}

/** What the transaction is about, were there no outbox. */
export async function businessInsert(client: PoolClient): Promise<void> {
  await client.query("INSERT INTO public.business (note) VALUES ($1)", ["an order"]);
}
