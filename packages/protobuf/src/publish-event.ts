import type { DataIn, EventDefinition, MessageOptions, Published } from "postbox";

/** `publisher.publish` for this one event. */
export type PublishEvent<E extends EventDefinition> = (data: DataIn<E>, options?: MessageOptions) => Promise<Published>;
