import type { DescMessage } from "@bufbuild/protobuf";

/** A message that is an event, with what its generated code needs. */
export interface ProtoEvent {
  readonly message: DescMessage;
  /** The name of the definition: `BookCreated`. */
  readonly name: string;
  /** The type name on the wire. */
  readonly type: string;
  /** Set only if it differs from the topic that follows from the type. */
  readonly topic: string | undefined;
  /** The property that holds the key. */
  readonly key: string | undefined;
  /** The comment in the `.proto`. */
  readonly comment: string | undefined;
}
