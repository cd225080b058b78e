/*
 * Names of headers that belong to others. Each is a pattern in the syntax that JavaScript and PostgreSQL share, compared without regard to
 * case, since publishing in SQL refuses what publishing in TypeScript refuses.
 */

/** What brokers write about the deliveries of a message. A handler never sees it, and a copy of the message does not carry it. */
export const brokerHeaders = "x-death$|x-(first|last)-death-|x-(delivery|acquired)-count$";

/** What a message's own header must not be called: brokers and bindings write these themselves, and it would be taken for theirs. */
export const reservedHeaders = `^(ce[-_]|cloudevents[:_]|content-type$|${brokerHeaders}|postbox-)`;
