import type { DescMessage } from "@bufbuild/protobuf";

/** A message that is an event, as generated code has it. */
export interface ProtoEvent {
  readonly message: DescMessage;
  /** Of the definition: `BookCreated`. */
  readonly name: string;
  /** On the wire. */
  readonly type: string;
  /** Where it is not the one that follows from the type. */
  readonly topic: string | undefined;
  /** The property that holds the key. */
  readonly key: string | undefined;
  /** What the `.proto` says of it. */
  readonly comment: string | undefined;
}
