import type { Channel } from "amqplib";

/**
 * Gathers the acknowledgements of a channel. Those of one turn of the event loop are sent together, and as one command
 * if no earlier delivery is unsettled. A quorum queue stores each command, and accepts a limited number at a time: if a
 * channel closes behind many acknowledgements, the last ones are lost.
 */
export interface Acks {
  /** A delivery has arrived. */
  opened(tag: number): void;
  /** It is to be acknowledged. */
  add(tag: number): void;
  /** It was settled in another way. */
  without(tag: number): void;
  /** Sends what was added now. */
  flush(): void;
}

/** For a channel with a single consumer, which settles all of its deliveries here. */
export function gatheredAcks(channel: Channel): Acks {
  /** In ascending order, as the deliveries arrive. */
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
      // The channel has closed, and its user learns of that: all of these are delivered again.
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
