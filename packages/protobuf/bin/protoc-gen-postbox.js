#!/usr/bin/env node

try {
  const { runNodeJs } = await import("@bufbuild/protoplugin");
  const { createPlugin } = await import("../dist/generator/plugin.js");
  runNodeJs(createPlugin());
} catch (error) {
  if (error.code !== "ERR_MODULE_NOT_FOUND" || !error.message.includes("'@bufbuild/protoplugin'")) throw error;
  // Only who generates needs it, and has it with protoc-gen-es in most cases; it brings a compiler along.
  process.stderr.write(
    "protoc-gen-postbox: @bufbuild/protoplugin is not installed; npm install -D @bufbuild/protoplugin\n",
  );
  process.exitCode = 1;
}
