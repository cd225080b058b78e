#!/usr/bin/env node
import { runInProcess } from "../dist/main.js";

await runInProcess();
