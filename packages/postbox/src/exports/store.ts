// biome-ignore-all assist/source/organizeImports: grouped by what an author does with it.

// For authors of a store, and of the transactions of a library. First the database seam.
export {
  type AppendOptions,
  type Arrival,
  type Aside,
  type BeginOptions,
  type Box,
  defaultReadBytes,
  type Dialect,
  type DueOptions,
  type Executor,
  type GuardedStatement,
  type Inbox,
  inboxOf,
  type IsolationLevel,
  type Lane,
  type LaneGap,
  type LaneRead,
  type LaneRows,
  type LateRow,
  type LateRows,
  type Member,
  type Membership,
  type Order,
  type OwnOptions,
  type Promoted,
  type ReadOptions,
  type ReadRows,
  type Remembered,
  type RememberOptions,
  type Row,
  type ScheduleState,
  type SessionId,
  type Settled,
  type Settlement,
  type SettleOptions,
  type Store,
  type SyncStore,
  type TakenLane,
  type TickClaim,
  type TransactionExecutor,
  type TransactionLibrary,
  type TransactionOptions,
  type TransactionSession,
  type Writers,
} from "../store.js";
export type { NotificationListener, Notifier } from "../notifier.js";

// What every store keeps in the same way.
export { laneCount, laneOf } from "../internal/lane.js";
export { ConfigError, type ErrorDetails, PostboxError } from "../errors.js";
export { checkOptions, type OptionRule } from "../options.js";
export { type Failpoint, failpoints } from "../internal/failpoints.js";
export { type Runtime, runtimeWith } from "../internal/runtime.js";
export { createMessage, type MessageInput, type MessageLimits } from "../message/message.js";
export { type WriterRange, WriterRanges } from "../stores/writer-ranges.js";
export { consumerOf, requireBox } from "../stores/box-names.js";
export { dropsKeptMs } from "../stores/dropped-entries.js";
export {
  asideSettlement,
  holdNames,
  type RowWrite,
  type SettledHold,
  type SettledRow,
  type SettlePlan,
  type SettleState,
  settlePlan,
} from "../stores/settle-plan.js";
// Where all that is stored fits in memory: a store that loads and saves it.
export type { BoxContents } from "../stores/rows/box-rows.js";
export { type RowsAccess, storeOverRows, type VerbsOverRows } from "../stores/rows/over-rows.js";
export { StoreRows, type StoreRowsOptions } from "../stores/rows/store-rows.js";
export { guardedStatement } from "../transactions/guarded-statement.js";
export {
  type SurroundingTransactions,
  surroundingTransactions,
  type TransactionOpener,
} from "../transactions/surrounding-transaction.js";

// The operator's side, over what a store does itself.
export type {
  Admin,
  AuditEntry,
  BoxStats,
  MessageFilter,
  Status,
  StoredMessage,
  StoredMessageDetails,
} from "../admin.js";
export type {
  ChangeAction,
  CheckedAudit,
  CheckedChange,
  CheckedOperator,
  CheckedPurge,
  CheckedSelection,
} from "../stores/admin-options.js";
export { checkPurge } from "../stores/admin-options.js";
export type { ChangedStep } from "../stores/change-batches.js";
export {
  type AdminPrimitives,
  type BoundedStep,
  type BoxView,
  createAdmin,
  type PageOf,
  type Reach,
} from "../stores/create-admin.js";
export type { AnyProblem, Health, HealthOptions, HealthProblem } from "../health.js";
export { type BoxSight, boxProblems, healthOf } from "../stores/box-problems.js";
export { type CheckedHealth, checkHealth } from "../stores/health-options.js";
