// For generated code and for events that are defined by hand.
export { defineProtobufEvent, type ProtobufEvent, type ProtobufEventOptions } from "./define-protobuf-event.js";
export type { EventService } from "./event-service.js";
export { onEvent } from "./on-event.js";
// For code that reads or writes the data of such events elsewhere.
export { protobufCodecs } from "./protobuf-codecs.js";
export type { PublishEvent } from "./publish-event.js";
