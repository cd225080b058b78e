import type { Channel } from "amqplib";

/**
 * The acks of a channel, gathered: those of one turn of the event loop go out together, and as one command where no
 * delivery before them is open. A quorum queue has to store each command, and it keeps only so many under way: of a
 * channel that is closed behind many acks, it forgets the last.
 */
export interface Acks {
  /** A delivery has come. */
  opened(tag: number): void;
  /** It has ended well. */
  add(tag: number): void;
  /** It has ended in another way. */
  without(tag: number): void;
  /** Writes now what was added. */
  flush(): void;
}

/** For a channel with a single consumer, all of whose deliveries begin and end here. */
export function gatheredAcks(channel: Channel): Acks {
  /** In the order of their tags, since they come so. */
  const open = new Set<number>();
  let added: number[] = [];

  const ack = (deliveryTag: number, allUpTo: boolean) => channel.ack({ fields: { deliveryTag } } as never, allUpTo);

  function flush(): void {
    const tags = added;
    if (tags.length === 0) return;
    added = [];
    for (const tag of tags) open.delete(tag);
    const [firstOpen = Number.POSITIVE_INFINITY] = open;
    let last = 0;
    try {
      for (const tag of tags) {
        if (tag > firstOpen) ack(tag, false);
        else if (tag > last) last = tag;
      }
      if (last > 0) ack(last, true);
    } catch {
      // The channel has ended meanwhile, and whoever uses it hears of that: all of these are delivered again.
    }
  }

  return {
    opened(tag) {
      open.add(tag);
    },
    add(tag) {
      if (added.length === 0) process.nextTick(flush);
      added.push(tag);
    },
    without(tag) {
      open.delete(tag);
    },
    flush,
  };
}
