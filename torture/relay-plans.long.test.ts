import { size } from "./filled-box.js";
import { relayPlans } from "./relay-plans.js";

relayPlans(size);
