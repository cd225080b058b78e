/*
 * Names of headers that belong to others. Each is a pattern in the syntax that JavaScript and PostgreSQL share, and is
 * compared without regard to case: publishing in SQL refuses what publishing in TypeScript refuses.
 */

/**
 * What brokers write about the deliveries of a message. Handlers never see it, and a copy of the message does not carry
 * it.
 */
export const brokerHeaders = "x-death$|x-(first|last)-death-|x-(delivery|acquired)-count$";

/** Names that a message's own headers must not have: brokers and bindings write these themselves. */
export const reservedHeaders = `^(ce[-_]|cloudevents[:_]|content-type$|${brokerHeaders}|postbox-)`;
