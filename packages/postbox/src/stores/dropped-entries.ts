/**
 * How long the audit keeps what relays have dropped. Drops are routine, so without a limit these entries would grow
 * with the traffic. Changes by operators are kept.
 */
export const dropsKeptMs = 30 * 24 * 60 * 60 * 1000;

/**
 * How many old entries of a box a new one removes at most: more than one, so that their number shrinks, but few, so
 * that the relay is not delayed.
 */
export const dropsCleared = 10;
