export { type ConnectedStore, type ConnectStoreOptions, connectStore } from "./connect-store.js";
export { type ConnectedTransport, type ConnectTransportOptions, connectTransport } from "./connect-transport.js";
