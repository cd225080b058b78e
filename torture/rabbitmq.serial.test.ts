import { rabbitmqRuns } from "./rabbitmq-runs.js";

rabbitmqRuns(1);
