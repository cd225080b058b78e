import { processRuns } from "./process-runs.js";

processRuns("rabbitmq", 10);
