import { expect, it } from "vitest";
import { type DeclaredOption, declared, isSameDefault } from "./option-types.js";
import { named, pageText, tableOf } from "./snippets.js";

interface Table {
  readonly page: string;
  /** The first cell of its header. */
  readonly head: string;
  /** Header of another table on the page that lists options shared by several functions. */
  readonly also?: string;
  /** The types that declare the options, as `file type`. A later type adds to the earlier ones. */
  readonly types: readonly string[];
  /** Options that another table lists, or that are internal. */
  readonly without?: readonly string[];
}

const guide = (name: string) => `docs/guides/${name}.md`;
const src = "postbox/src";
const options = "docs/options.md";

const tables: readonly Table[] = [
  {
    page: guide("configuration"),
    head: "`createMessaging(…)`",
    types: [`${src}/messaging/messaging-options.ts MessagingOptions`],
  },
  {
    page: guide("configuration"),
    head: "`messaging.consumer(name, …)`",
    types: [`${src}/messaging/messaging.ts ConsumerOptions`],
  },
  {
    page: "docs/middleware.md",
    head: "`createRouter(name, …)`",
    types: [`${src}/router/router-options.ts RouterOptions`],
  },
  {
    page: "docs/middleware.md",
    head: "`context.`",
    types: [
      `${src}/router/context.ts BaseContext`,
      `${src}/router/context.ts InTransaction`,
      `${src}/router/context.ts ManualAck`,
    ],
    without: ["kept"],
  },
  {
    page: guide("mysql"),
    head: "`mysqlStore(…)`",
    types: [`${src}/stores/mysql/mysql-store.ts MysqlStoreOptions`],
    without: ["runtime", "transactions"],
  },
  {
    page: guide("mysql"),
    head: "`migrationSql(…)`",
    types: [`${src}/stores/mysql/schema.ts MigrationOptions`],
  },
  {
    page: guide("sqlite"),
    head: "`sqliteStore(…)`",
    types: [`${src}/stores/sqlite/sqlite-store.ts SqliteStoreOptions`],
    without: ["runtime"],
  },
  {
    page: guide("outbox"),
    head: "`createOutbox(store, …)`",
    types: [`${src}/publisher/publisher.ts PublisherOptions`, `${src}/outbox/outbox.ts OutboxOptions`],
  },
  {
    page: guide("outbox"),
    head: "`createRelay(store, sender, …)`",
    types: [
      `${src}/relay/relay-options.ts RelayOptions`,
      `${src}/stores/postgres/postgres-retention.ts PostgresPurgeOptions`,
    ],
  },
  {
    page: guide("outbox"),
    head: "`postgresStore(…)`",
    types: [`${src}/stores/postgres/postgres-store.ts PostgresStoreOptions`],
    without: ["transactions"],
  },
  {
    page: guide("outbox"),
    head: "entry of `createSchedule(outbox, …)`",
    types: [
      `${src}/schedule/create-schedule.ts ScheduledMessage`,
      `${src}/schedule/create-schedule.ts Recurrence`,
      `${src}/schedule/create-schedule.ts MissedTicks`,
    ],
  },
  {
    page: guide("inbox"),
    head: "option",
    types: [`${src}/inbox/inbox-options.ts InboxOptions`, `${src}/inbox/inbox-options.ts DurableInboxOptions`],
  },
  {
    page: guide("rabbitmq"),
    head: "`rabbitmqSender(…)`",
    also: "connection, both sides",
    types: [
      `${src}/transports/rabbitmq/connection.ts RabbitmqConnectionOptions`,
      `${src}/transports/rabbitmq/rabbitmq-sender.ts RabbitmqSenderOptions`,
    ],
  },
  {
    page: guide("rabbitmq"),
    head: "`rabbitmqReceiver(…)`",
    also: "connection, both sides",
    types: [
      `${src}/transports/rabbitmq/connection.ts RabbitmqConnectionOptions`,
      `${src}/transports/rabbitmq/rabbitmq-receiver.ts RabbitmqReceiverOptions`,
    ],
  },
  {
    page: guide("kafka"),
    head: "`kafkaSender(…)`",
    also: "connection, both sides",
    types: [
      `${src}/transports/kafka/connection.ts KafkaConnectionOptions`,
      `${src}/transports/kafka/kafka-sender.ts KafkaSenderOptions`,
    ],
  },
  {
    page: guide("kafka"),
    head: "`kafkaReceiver(…)`",
    also: "connection, both sides",
    types: [
      `${src}/transports/kafka/connection.ts KafkaConnectionOptions`,
      `${src}/transports/kafka/kafka-receiver.ts KafkaReceiverOptions`,
    ],
  },
  { page: guide("operating"), head: "`store.health(…)`", types: [`${src}/health.ts HealthOptions`] },
  {
    page: guide("operating"),
    head: "`postgresStore(…).health(…)`",
    types: [`${src}/stores/postgres/postgres-problems.ts PostgresHealthOptions`],
  },
  ...(
    [
      ["`defineEvent(…)`", "event/define-event.ts EventOptions"],
      ["`upcastFrom(type, upcast, …)`", "event/upcast.ts UpcastFromOptions"],
      ["`publish(event, data, …)`", "event/define-event.ts MessageAttributes", "event/define-event.ts Delivery"],
      [
        "`createPublisher(sender, …)`",
        "publisher/publisher.ts PublisherOptions",
        "publisher/create-publisher.ts DirectPublisherOptions",
      ],
      ["`createSchedule(outbox, entries, …)`", "schedule/create-schedule.ts ScheduleOptions"],
      ["`retry(…)`", "middleware/retry.ts RetryOptions"],
      ["`deadline(…)`", "middleware/deadline.ts DeadlineOptions"],
      ["`exponential(…)`", "backoff.ts ExponentialOptions"],
      ["`logTo(logger, …)`", "telemetry/log.ts LogOptions"],
      [
        "`store.purge(…)`",
        "admin.ts BoxOption",
        "admin.ts PurgeOptions",
        "stores/postgres/postgres-retention.ts PostgresPurgeOptions",
      ],
      ["`postgresNotifier(…)`", "stores/postgres/postgres-notifier.ts PostgresNotifierOptions"],
      ["`migrationSql(…)`", "stores/postgres/migrations.ts MigrationSqlOptions"],
      ["`connectStore(url, …)`", "connect/connect-store.ts ConnectStoreOptions"],
      ["`connectTransport(url, …)`", "connect/connect-transport.ts ConnectTransportOptions"],
      ["`kafkajsClient(…)`", "transports/kafka/kafkajs-client.ts KafkajsClientOptions"],
      ["`broker.receiver(queue, …)`", "connect/connect-transport.ts ConnectedReceiverOptions"],
      ["`rabbitmqParkingLot(…)`", "transports/rabbitmq/parking-lot.ts RabbitmqParkingLotOptions"],
      ["`memoryStore(…)`", "stores/memory/memory-store.ts MemoryStoreOptions"],
      ["`memoryDatabase(…)`", "stores/memory/memory-database.ts MemoryDatabaseOptions"],
      ["`memoryBroker(…)`", "transports/memory/memory-broker.ts MemoryBrokerOptions"],
      ["`memoryBroker().sender(…)`", "transports/memory/memory-broker.ts MemorySenderOptions"],
      ["`memoryBroker().receiver(…)`", "transports/memory/memory-broker.ts MemoryReceiverOptions"],
      ["`memoryLog(…)`", "transports/memory/memory-log.ts MemoryLogOptions"],
      ["`memoryLog().receiver(…)`", "transports/memory/memory-log.ts MemoryLogReceiverOptions"],
    ] as const
  ).map(([head, ...types]) => ({ page: options, head, types: types.map((type) => `${src}/${type}`) })),
  {
    page: options,
    head: "`transaction(store, …)`, `store.transaction(work, …)`",
    types: [`${src}/store.ts TransactionOptions`],
    // Internal to routers.
    without: ["startsWithStatement"],
  },
  {
    page: options,
    head: "`testMessaging(…)`",
    types: ["testkit/src/app/test-messaging.ts TestMessagingOptions"],
  },
  { page: options, head: "`app.settled(…)`", types: ["testkit/src/app/settle.ts SettledOptions"] },
];

/** Describes every difference between the rows of a table and the declared options. */
function differences(rows: readonly (readonly string[])[], types: ReadonlyMap<string, DeclaredOption>): string[] {
  const listed = rows.map(([cell]) => named(cell)[0] ?? "");
  const found = [
    ...[...types.keys()].filter((name) => !listed.includes(name)).map((name) => `${name} is missing`),
    ...listed.filter((name) => !types.has(name)).map((name) => `${name} does not exist`),
    ...listed.filter((name, at) => listed.indexOf(name) !== at).map((name) => `${name} is there twice`),
  ];
  for (const [cell, , value = ""] of rows) {
    const name = named(cell)[0] ?? "";
    const type = types.get(name);
    if (type === undefined) continue;
    if (type.isRequired !== /^(required|this or )/.test(value)) found.push(`${name}: '${value}'; is it required?`);
    if (type.isRequired || type.default === undefined) continue;
    if (!isSameDefault(value, type.default)) found.push(`${name} defaults to ${type.default}, not to ${value}`);
  }
  return found;
}

it.each(tables)(
  "$page: the table of $head has each option, with its default",
  ({ page, head, also, types, without }) => {
    const all = new Map(types.flatMap((type) => [...declared(...(type.split(" ") as [string, string]))]));
    for (const name of without ?? []) expect(all.delete(name) || name === "transactions", name).toBe(true);
    const isContext = head === "`context.`";
    const rows = [head, ...(also === undefined ? [] : [also])]
      .flatMap((each) => tableOf(page, each))
      .filter(([cell]) => !without?.includes(named(cell)[0] ?? ""));
    expect(rows.length, "rows").toBeGreaterThan(0);
    // A handler's context has no defaults.
    const compared = isContext
      ? new Map([...all].map(([name]) => [name, { isRequired: false, default: undefined }]))
      : all;
    expect(differences(rows, compared)).toEqual([]);
  },
);

it("a missing, an extra, a misnamed and a doubled option are found, and a wrong default", () => {
  const retry = declared(`${src}/middleware/retry.ts`, "RetryOptions");
  expect([...retry.keys()]).toEqual(["maxAttempts", "backoff", "when"]);
  const right = [
    ["`maxAttempts`", "total tries", "3"],
    ["`backoff`", "the delay", "`exponential({ initialMs: 50, maxMs: 1000 })`"],
    ["`when`", "which errors", "all but `PermanentError`"],
  ];
  const [maxAttempts = [], backoff = [], when = []] = right;
  expect(differences(right, retry)).toEqual([]);
  expect(differences([maxAttempts, backoff], retry)).toEqual(["when is missing"]);
  expect(differences([...right, ["`jitter`", "", "1"]], retry)).toEqual(["jitter does not exist"]);
  expect(differences([["`maxAttempt`", "", "3"], backoff, when], retry)).toEqual([
    "maxAttempts is missing",
    "maxAttempt does not exist",
  ]);
  expect(differences([...right, when], retry)).toEqual(["when is there twice"]);
  expect(differences([["`maxAttempts`", "", "10"], backoff, when], retry)).toEqual([
    "maxAttempts defaults to 3, not to 10",
  ]);
  expect(differences([["`maxAttempts`", "", "required"], backoff, when], retry)).toHaveLength(2);
});

/** Exported option types without a table of their own, and where they are documented. */
const elsewhere: Readonly<Record<string, string>> = {
  EnvMessagingOptions: "the variables, in the guide to configuration",
  MessageOptions: "those of publish",
  OutboxReceiverOptions: "those of createRelay",
  PublisherOptions: "those of createOutbox and createPublisher",
  AuditOptions: "a list in the guide to operating",
  ChangeOptions: "a list in the guide to operating",
  DryRunOptions: "a list in the guide to operating",
  ListOptions: "a list in the guide to operating",
  ReplayOptions: "a list in the guide to operating",
  StatsOptions: "a list in the guide to operating",
  AsyncApiOptions: "an example in the guide to schemas",
  JsonSchemaDocumentOptions: "an example in the guide to schemas",
  JsonSchemaOptions: "an example in the guide to schemas",
  ListParkedOptions: "limit only",
  ReplayParkedOptions: "limit only",
};

it("each exported type of options has a table", () => {
  const exported = pageText("checks/exported-names/postbox.txt").split("\n\n");
  const forUsers = exported.filter((entry) => !/^postbox\/(store|transport|middleware)\n/.test(entry)).join("\n");
  const names = new Set([...forUsers.matchAll(/type (\w+Options)$/gm)].map(([, name]) => name as string));
  const inTables = new Set(tables.flatMap(({ types }) => types.map((type) => type.split(" ")[1] as string)));
  expect([...names].filter((name) => !inTables.has(name) && elsewhere[name] === undefined)).toEqual([]);
  expect(
    Object.keys(elsewhere).filter((name) => !names.has(name) || inTables.has(name) !== (name === "PublisherOptions")),
  ).toEqual([]);
});
