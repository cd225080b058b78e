import { describeOnEach } from "@postbox/testkit/servers";
import { expect, it } from "vitest";
import { rabbitmqStages } from "../../../fixtures/rabbitmq-stage.js";

/** What a receiver declares, what it checks, and how it reports what is missing. */
describeOnEach("rabbitmq", ({ url }) => {
  const { receiving } = rabbitmqStages(url);

  it("says which exchange is missing with topology: check", async () => {
    const { running } = await receiving(
      { topology: "check" },
      {
        async prepare(own, name) {
          await own.assertQueue(`${name}.parked`, { arguments: { "x-queue-type": "quorum" } });
          await own.deleteExchange(name.replace(/^queue\./, ""));
        },
      },
    );
    await expect(running).rejects.toMatchObject({ code: "topology-missing" });
    await expect(running).rejects.toThrow(/exchange test\./);
  });

  it("only looks for its queues with topology: check, and says what is missing", async () => {
    const { running } = await receiving({ topology: "check" });
    await expect(running).rejects.toThrow(/\[topology-missing\] there is no queue .*\.parked/);
  });

  it("says what differs from what is there", async () => {
    const { running } = await receiving({ queueType: "classic" });
    await expect(running).rejects.toThrow(
      /\[topology-differs\] .*inequivalent arg.* or move the consumer to a new queue/,
    );
  });
});
