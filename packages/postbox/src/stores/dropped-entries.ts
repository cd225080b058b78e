/**
 * How long the audit keeps what relays have dropped. Dropping is routine, so without a limit these entries would grow with the traffic;
 * what operators have changed stays.
 */
export const dropsKeptMs = 30 * 24 * 60 * 60 * 1000;

/** How many entries of a box one that is added may clear away: more than one, so that they become fewer, and few, so that a relay goes on. */
export const dropsCleared = 10;
