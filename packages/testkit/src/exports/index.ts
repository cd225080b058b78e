// Building blocks for tests of anything that Postbox connects to.
export { arbitraryMessage } from "../arbitrary-message.js";
export { type FaultPlan, faultySender, type SendFault } from "../faulty-sender.js";
export { type Freeze, type FreezeOptions, freezeAt } from "../freeze-at.js";
export { type Gate, gate, settlesWithin } from "../gate.js";
export { type ManualRuntime, type ManualRuntimeOptions, manualRuntime } from "../manual-runtime.js";
export { comparable, testMessage, testMessages } from "../messages.js";
export { type RecordingOptions, type RecordingSender, recordingSender } from "../recording-sender.js";
export { type TelemetryLog, telemetryLog } from "../telemetry-log.js";
