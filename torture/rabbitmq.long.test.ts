import { rabbitmqRuns } from "./rabbitmq-runs.js";

rabbitmqRuns(10);
