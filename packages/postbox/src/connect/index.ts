export { type ConnectedStore, type ConnectStoreOptions, connectStore } from "./connect-store.js";
export { type ConnectedTransport, connectTransport } from "./connect-transport.js";
