export { type ConnectedStore, type ConnectStoreOptions, connectStore } from "./connect-store.js";
export {
  type ConnectedReceiverOptions,
  type ConnectedTransport,
  type ConnectTransportOptions,
  connectTransport,
} from "./connect-transport.js";
