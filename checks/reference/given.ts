// What the examples of the doc comments take for granted: a service with its connections, and what authors of adapters
// have at hand. Only its types matter; no example is executed.

import type { HistoryEvent } from "@postbox/testkit/history";
import type {
  LibrarySuiteOptions,
  MysqlLibrarySuiteOptions,
  NotifierHarness,
  StoreFeatures,
  StoreHarness,
} from "@postbox/testkit/suites";
import { Connection, createPool, type PoolConnection, type Pool as PromisePool } from "mysql2/promise";
import { ClientBase, Pool } from "pg";
import {
  createOutbox,
  createRelay,
  defineEvent,
  type Message,
  type Receiver,
  type Sender,
  type Telemetry,
} from "postbox";
import type { ConnectedTransport } from "postbox/connect";
import type { mikroOrm } from "postbox/mikro-orm";
import { postgresStore } from "postbox/postgres";
import type { prisma } from "postbox/prisma";
import type {
  AdminPrimitives,
  Aside,
  BoxSight,
  Row,
  RowsAccess,
  SettledHold,
  SettledRow,
  Settlement,
  TransactionOpener,
} from "postbox/store";
import type { typeorm } from "postbox/typeorm";
import { z } from "zod";

export { once } from "node:events";
export { writeFileSync } from "node:fs";
export { connect } from "node:net";
export { DurationSchema } from "@bufbuild/protobuf/wkt";
export { drizzle as drizzleOf } from "drizzle-orm/node-postgres";
export { default as fc } from "fast-check";
export { default as Knex } from "knex";
export { Kysely, PostgresDialect } from "kysely";
export { default as Database } from "libsql";
export { default as postgres } from "postgres";
export { expect, it } from "vitest";
export { ClientBase, Connection, createPool, Pool, z };

export declare const pool: Pool;
export declare const mysqlPool: PromisePool;
export declare const onMysql: MysqlLibrarySuiteOptions<PoolConnection>;
export declare const tx: ClientBase;
export declare const telemetry: Telemetry;
export declare const broker: ConnectedTransport;
export declare const sender: Sender;
export declare const receiver: Receiver;
export declare const message: Message;
export declare const received: readonly Message[];
export declare const sent: readonly Message[];
export declare const request: Request;
export declare const order: { readonly orderId: string; readonly total: number };
export declare function placeOrder(id: string): Promise<void>;
export const store = postgresStore({ pool });
export const outbox = createOutbox(store, { source: "/orders" });
export const relay = createRelay(store, sender);
export const OrderPlaced = defineEvent({
  type: "shop.orders.v1.OrderPlaced",
  schema: z.object({ orderId: z.string(), total: z.number() }),
  key: ({ orderId }) => orderId,
});

export declare const orm: { readonly em: Parameters<typeof mikroOrm>[0] };
export declare const client: Parameters<typeof prisma>[0];
export declare const dataSource: Parameters<typeof typeorm>[0];

export declare const row: Row;
export declare const rows: readonly Row[];
export declare const settledRows: readonly SettledRow[];
export declare const aside: Aside;
export declare const holds: readonly SettledHold[];
export declare const sight: BoxSight;
export declare const primitives: AdminPrimitives;
export declare const settlements: readonly Settlement[];
export declare const access: RowsAccess;
export declare const begin: TransactionOpener<ClientBase>["begin"];
export declare const features: StoreFeatures;
export declare const harness: StoreHarness<ClientBase>;
export declare const notifierHarness: NotifierHarness;
export declare const mine: LibrarySuiteOptions<ClientBase>;
export declare const history: readonly HistoryEvent[];
