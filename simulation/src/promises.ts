import type { Promises, Sighting } from "@postbox/testkit/history";
import type { Fault, Plan } from "./plan.js";
import { box } from "./stage.js";

/** Returns what the library promises for a plan. */
export function promisesOf(plan: Plan): Promises {
  const { order, onSent, onPark } = plan.relay;
  // Straight from the outbox, a failed message delays the messages behind it.
  const disturbs = plan.durable ? disturbsArrival : disturbsConsumers;
  const undisturbed = plan.consumers === 1 && !plan.faults.some(disturbs);
  const effectsInOrder = plan.direct ? order !== "none" : order === "key" && undisturbed;
  return {
    boxes: [
      {
        box,
        order,
        strictKeyOrder: plan.strictKeyOrder,
        keep: onSent === "keep",
        holdParked: onPark === "hold",
        consumers: [
          { consumer: "billing", effectsInOrder, wants: isOf("order.placed") },
          { consumer: "audit", effectsInOrder, wants: isOf("order.handled") },
        ],
      },
    ],
  };
}

/** Whether a fault changes the order of handling: a failed message is retried later, after the next one of its key. */
function disturbsConsumers(fault: Fault): boolean {
  const kinds: readonly Fault["kind"][] = ["handlers fail", "commits unknown", "store weather", "connection lost"];
  return kinds.includes(fault.kind) || ("role" in fault && fault.role === "consumer");
}

/** Whether a fault changes the order in which messages arrive. With a durable inbox only that order matters. */
function disturbsArrival(fault: Fault): boolean {
  return fault.kind === "connection lost" || ("role" in fault && fault.role === "consumer");
}

function isOf(type: string) {
  return ({ digest }: Sighting) => digest.includes(` ${type}`);
}
