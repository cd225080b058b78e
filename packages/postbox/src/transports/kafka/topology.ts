import { ConfigError } from "../../errors.js";
import type { OptionRule } from "../../options.js";
import type { KafkaCluster } from "./client.js";
import { code, codeText } from "./error-codes.js";

/** How to make topics that are missing. */
export interface TopicPlan {
  readonly partitions: number;
  /** On how many brokers each partition is stored. Defaults to the brokers' own default. */
  readonly replicas?: number;
}

export const topicPlanRule: OptionRule = {
  expected: "an object with partitions, such as { partitions: 12, replicas: 3 }",
  test: (value) => {
    const { partitions, replicas = 1 } = (value ?? {}) as Partial<TopicPlan>;
    return [partitions, replicas].every((each) => Number.isSafeInteger(each) && (each as number) >= 1);
  },
};

/** Makes topics unless they exist. A topic that exists keeps its partitions. */
export async function createTopics(
  cluster: Pick<KafkaCluster, "createTopics">,
  topics: Iterable<string>,
  { partitions, replicas = -1 }: TopicPlan,
): Promise<void> {
  const wanted = [...new Set(topics)].map((topic) => ({ topic, partitions, replicas }));
  if (wanted.length === 0) return;
  for (const { topic, code: answer, text } of await cluster.createTopics(wanted)) {
    if (answer === code.none || answer === code.topicExists) continue;
    const why = text === "" ? codeText(answer) : text;
    throw new ConfigError("topology-missing", `topic ${topic} cannot be made: ${why}; make it with Kafka's own tools`);
  }
}
