import type { ChannelModel } from "amqplib";

/**
 * Marks the properties of a message whose headers the client could not decode. A symbol, so that no publisher can write
 * it.
 */
const reason = Symbol("why the properties cannot be decoded");

/** Why the client could not decode a message's properties; undefined if it could. */
export function undecodable(properties: object): string | undefined {
  return (properties as { readonly [reason]?: string })[reason];
}

/** The client's connection, below its documented one. */
interface FrameReader {
  /** The bytes that are not parsed yet. It advances before a frame is decoded, so a frame that fails is skipped. */
  readonly rest: Buffer;
  /** The next frame, or false if it is incomplete. */
  recvFrame(): object | false;
}

/**
 * Keeps the connection if a message's headers cannot be decoded, because they are nested too deeply for the client's
 * recursive decoder or have a type that it does not know. The message then arrives without properties, and
 * `undecodable` returns the reason. By itself, the client would close the connection; the broker would deliver the same
 * message again, and the consumer would never get past it.
 */
export function keepUndecodable(connection: ChannelModel): void {
  const reader = connection.connection as unknown as FrameReader;
  const receive = reader.recvFrame.bind(reader);
  reader.recvFrame = () => {
    const unread = reader.rest;
    try {
      return receive();
    } catch (error) {
      // The frame itself is broken, or of another kind: that is for the client to handle.
      if (reader.rest === unread || !beginsWithProperties(unread)) throw error;
      return {
        id: unread.readUInt16BE(7),
        channel: unread.readUInt16BE(1),
        size: Number(unread.readBigUInt64BE(11)),
        fields: { [reason]: (error as Error).message },
      };
    }
  };
}

/**
 * Whether the bytes begin with a complete frame of properties: type 2, channel, size; class, weight, body size,
 * properties; end.
 */
function beginsWithProperties(bytes: Buffer): boolean {
  return bytes.length >= 20 && bytes[0] === 2 && bytes.length >= 8 + bytes.readUInt32BE(3);
}
