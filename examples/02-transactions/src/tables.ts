import { integer, pgTable, text } from "drizzle-orm/pg-core";

export const orders = pgTable("orders", { id: text().primaryKey(), total: integer().notNull() });
export const invoices = pgTable("invoices", { orderId: text("order_id").notNull(), total: integer().notNull() });
