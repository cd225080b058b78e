/** The error codes of Kafka's protocol that Postbox acts upon. */
export const code = {
  none: 0,
  offsetOutOfRange: 1,
  unknownTopic: 3,
  leaderNotAvailable: 5,
  notLeader: 6,
  tooLarge: 10,
  coordinatorLoading: 14,
  coordinatorNotAvailable: 15,
  notCoordinator: 16,
  invalidTopic: 17,
  batchTooLarge: 18,
  illegalGeneration: 22,
  unknownMember: 25,
  rebalanceInProgress: 27,
  topicForbidden: 29,
  groupForbidden: 30,
  clusterForbidden: 31,
  topicExists: 36,
  outOfOrderSequence: 45,
  duplicateSequence: 46,
  invalidProducerEpoch: 47,
  unknownProducer: 59,
  memberIdRequired: 79,
  fencedInstance: 82,
  invalidRecord: 87,
} as const;

const names = new Map<number, string>(Object.entries(code).map(([name, number]) => [number, name]));

/** The code with its name, for texts. */
export function codeText(number: number): string {
  const name = names.get(number);
  return name === undefined
    ? `error ${number}`
    : `${name.replace(/[A-Z]/g, (letter) => ` ${letter.toLowerCase()}`)} (error ${number})`;
}

/** Codes of a partition that has no leader at the moment, or whose leader cannot store anything. */
const unavailable = new Set([3, 5, 6, 7, 8, 9, 13, 19, 20, 56, 74, 75, 76]);

/** Whether a batch may succeed soon, perhaps at another broker. */
export function isUnavailable(number: number): boolean {
  return unavailable.has(number);
}

/** Codes after which the producer must begin anew with another identity. */
const fatal = new Set<number>([
  code.outOfOrderSequence,
  code.invalidProducerEpoch,
  code.unknownProducer,
  // Fenced, and an id that belongs to another producer.
  90,
  49,
]);

export function isFatalForProducer(number: number): boolean {
  return fatal.has(number);
}
