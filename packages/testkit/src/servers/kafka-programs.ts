import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { homedir } from "node:os";
import { join } from "node:path";
import type { Command } from "./guarded-folder.js";
import { runCommand } from "./run-command.js";

const kafkaVersion = "4.1.0";
const downloadTimeoutMs = 5 * 60_000;

/**
 * Kafka is published to Maven Central as jars, not as a release. This makes Maven copy the broker, its tools and their
 * dependencies into one folder.
 */
const project = `<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>postbox</groupId>
  <artifactId>kafka-for-tests</artifactId>
  <version>1</version>
  <packaging>pom</packaging>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId>
      <artifactId>kafka_2.13</artifactId>
      <version>${kafkaVersion}</version>
    </dependency>
    <dependency>
      <groupId>org.apache.kafka</groupId>
      <artifactId>kafka-tools</artifactId>
      <version>${kafkaVersion}</version>
    </dependency>
  </dependencies>
</project>
`;

/** Where the jars stay between runs: `POSTBOX_TEST_KAFKA_HOME`, or a folder in the user's cache. */
function home(): string {
  const cache = process.env.XDG_CACHE_HOME || join(homedir(), ".cache");
  return process.env.POSTBOX_TEST_KAFKA_HOME || join(cache, "postbox", `kafka-${kafkaVersion}`);
}

/** Whether the jars are on this machine. */
function hasKafka(): boolean {
  return existsSync(home());
}

/**
 * Whether this machine can run a Kafka of its own: it has Java, and the jars or Maven to download them. A test that
 * needs one is skipped elsewhere.
 *
 * @example
 * ```ts
 * const server = canRunKafka() ? await disposable("kafka") : undefined;
 * ```
 */
export function canRunKafka(): boolean {
  const runs = (program: string) => spawnSync(program, ["-version"], { stdio: "ignore" }).status === 0;
  return runs("java") && (hasKafka() || runs("mvn"));
}

/**
 * Downloads Kafka with Maven, unless it is there. It appears in its place complete or not at all, also if two processes
 * download it at the same time.
 */
export async function fetchKafka(): Promise<void> {
  if (hasKafka()) return;
  mkdirSync(join(home(), ".."), { recursive: true });
  const folder = mkdtempSync(`${home()}-`);
  try {
    writeFileSync(join(folder, "pom.xml"), project);
    const jars = join(folder, "jars");
    const goal = ["dependency:copy-dependencies", `-DoutputDirectory=${jars}`];
    await runCommand("mvn", ["--quiet", "--batch-mode", "--file", join(folder, "pom.xml"), ...goal], downloadTimeoutMs);
    // If another process was faster, its jars are as good.
    if (!hasKafka()) renameSync(jars, home());
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** What Kafka logs: warnings and errors, to its standard output. */
const logging = `Configuration:
  Appenders:
    Console:
      name: STDOUT
      PatternLayout:
        pattern: "[%d] %p %m (%c)%n"
  Loggers:
    Root:
      level: WARN
      AppenderRef:
        - ref: STDOUT
`;

/**
 * A Java program of Kafka, such as `kafka.Kafka` (the broker) or `org.apache.kafka.tools.consumer.ConsoleConsumer`. Its
 * logging is configured by a file that this writes into `folder`.
 *
 * @example
 * ```ts
 * const { file, args } = kafkaProgram("/tmp/kafka", "kafka.tools.StorageTool", ["random-uuid"]);
 * ```
 */
export function kafkaProgram(folder: string, main: string, args: readonly string[]): Command {
  const log = join(folder, "log4j2.yaml");
  writeFileSync(log, logging);
  // Quick to start rather than quick when warm, and small: several of them share the machine with the tests.
  const small = ["-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"];
  const classes = ["-cp", join(home(), "*")];
  return { file: "java", args: [...small, `-Dlog4j2.configurationFile=${log}`, ...classes, main, ...args] };
}
