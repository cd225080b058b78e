import type { TestProject } from "vitest/node";

/** Before the first test of a run that needs no server: what would run on one is skipped, and says so. */
export default function setup(project: TestProject): void {
  project.provide("servers", { found: [], missing: [] });
}
