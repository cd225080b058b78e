import type { PoolClient } from "pg";
import { emptyBusiness } from "../business.js";
import type { Box } from "./box.js";

const connections = 10;

/** Runs transactions on 10 connections for `forMs`, one after the other on each. Returns transactions per second. */
export async function transactionRate(
  box: Box,
  forMs: number,
  transaction: (client: PoolClient) => Promise<void>,
): Promise<number> {
  await box.empty();
  await emptyBusiness(box.pool);
  await box.pool.query("CHECKPOINT");
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
