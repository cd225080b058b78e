import type { TestProject } from "vitest/node";

/** Setup of a run without servers: tests that need one are skipped, and say so. */
export default function setup(project: TestProject): void {
  project.provide("servers", { found: [], missing: [] });
}
