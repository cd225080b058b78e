import type { Promises, Sighting } from "@postbox/testkit/history";
import type { Fault, Plan } from "./plan.js";
import { box } from "./stage.js";

/** What the library promises when it is used as a plan says. */
export function promisesOf(plan: Plan): Promises {
  const { order, onSent, onPark } = plan.relay;
  // From the box itself, a message that fails holds up those behind it.
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

/** A message whose handling fails is retried later, and the next one of its key is handled meanwhile. */
function disturbsConsumers(fault: Fault): boolean {
  const kinds: readonly Fault["kind"][] = ["handlers fail", "commits unknown", "store weather", "connection lost"];
  return kinds.includes(fault.kind) || ("role" in fault && fault.role === "consumer");
}

/** Where everything is stored first, only the order in which it comes matters. */
function disturbsArrival(fault: Fault): boolean {
  return fault.kind === "connection lost" || ("role" in fault && fault.role === "consumer");
}

function isOf(type: string) {
  return ({ digest }: Sighting) => digest.includes(` ${type}`);
}
