import { processRuns } from "./process-runs.js";

processRuns("kafka", 1);
