// On Node.js 20.19 and later, require loads the library's modules.
const { createOutbox } = require("postbox");
const { memoryStore } = require("postbox/memory");

const store = memoryStore();
const outbox = createOutbox(store, { source: "/orders" });
store
  .transaction((tx) => outbox.in(tx).send({ id: "1", type: "shop.orders.v1.OrderPlaced" }))
  .then(() => store.admin.list())
  .then(({ messages }) => console.log(messages.map(({ id }) => id).join()));
