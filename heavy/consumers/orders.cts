import postbox = require("postbox");
import memory = require("postbox/memory");

export const outbox = postbox.createOutbox(memory.memoryStore(), { source: "/orders" });
