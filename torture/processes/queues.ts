/** The queues of a run, or its topics and groups. */
export interface RunQueues {
  /** How often the broker has taken a message. */
  accepted(): number;
  /** How many messages the consumers have not acknowledged, those in their parking lots included. */
  depth(): Promise<number>;
  remove(): Promise<void>;
}
