export { defineConfig, type PostboxConfig } from "./config.js";
