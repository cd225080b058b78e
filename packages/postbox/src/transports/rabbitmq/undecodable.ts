import type { ChannelModel } from "amqplib";

/**
 * Stands in the properties of a message in place of those that the client could not decode. A symbol: no publisher can
 * write it.
 */
const reason = Symbol("why the properties cannot be decoded");

/** Why the client could not decode a message's properties; undefined if it could. */
export function undecodable(properties: object): string | undefined {
  return (properties as { readonly [reason]?: string })[reason];
}

/** The client's connection below the one that it documents. */
interface FrameReader {
  /** The bytes that are not parsed yet. It moves on before a frame is decoded, so what fails is skipped. */
  readonly rest: Buffer;
  /** The next frame, or false if it has not arrived completely. */
  recvFrame(): object | false;
}

/**
 * Keeps the connection when a message's headers cannot be decoded, because they are nested too deeply for the client's
 * recursive decoder or have a type that it does not know. Such a message arrives without properties, and `undecodable`
 * tells why. By itself the client ends the connection; the broker then delivers the same message again, and the
 * consumer never gets past it.
 */
export function keepUndecodable(connection: ChannelModel): void {
  const reader = connection.connection as unknown as FrameReader;
  const receive = reader.recvFrame.bind(reader);
  reader.recvFrame = () => {
    const unread = reader.rest;
    try {
      return receive();
    } catch (error) {
      // The frame itself is broken, or it is another one: only the client can say what to do.
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
 * Whether a whole frame with properties is there: type 2, channel, size; class, weight, the size of the body,
 * properties; an end.
 */
function beginsWithProperties(bytes: Buffer): boolean {
  return bytes.length >= 20 && bytes[0] === 2 && bytes.length >= 8 + bytes.readUInt32BE(3);
}
