import { readdirSync } from "node:fs";
import { join, relative } from "node:path";
import { clone, create, fromBinary, toBinary } from "@bufbuild/protobuf";
import {
  type CodeGeneratorRequest,
  CodeGeneratorRequestSchema,
  CodeGeneratorResponseSchema,
  FileDescriptorProtoSchema,
  FileDescriptorSetSchema,
} from "@bufbuild/protobuf/wkt";
import { beforeAll, describe, expect, it } from "vitest";
import { buf, run } from "../../fixtures/programs.js";
import { createPlugin } from "./plugin.js";

const project = join(import.meta.dirname, "..", "..");
const parameter = "target=ts,import_extension=js,map_imports=postbox/:@postbox/protobuf";

type Files = CodeGeneratorRequest["protoFile"];

async function filesOf(folder: string): Promise<Files> {
  const built = await buf(folder, "build", "--as-file-descriptor-set", "-o", "-");
  expect(built.code, built.text).toBe(0);
  return fromBinary(FileDescriptorSetSchema, built.stdout).file;
}

function requestFor(protoFile: Files, fileToGenerate: string[], options = parameter): CodeGeneratorRequest {
  return create(CodeGeneratorRequestSchema, { protoFile, fileToGenerate, parameter: options });
}

/** The generated code of these files, by file name. */
function generate(...given: Parameters<typeof requestFor>): Record<string, string> {
  return Object.fromEntries(
    createPlugin()
      .run(requestFor(...given))
      .file.map(({ name, content }) => [name, content]),
  );
}

function protosIn(folder: string): string[] {
  const entries = readdirSync(folder, { recursive: true, withFileTypes: true });
  const files = entries.filter((entry) => entry.isFile() && entry.name.endsWith(".proto"));
  return files.map((entry) => relative(folder, join(entry.parentPath, entry.name))).sort();
}

let files: Files;
beforeAll(async () => {
  files = await filesOf(project);
});

const good = join(project, "fixtures", "proto");

// After an intended change of the generated code: npx vitest run packages/protobuf/src/generator --update
describe("what is generated", () => {
  it.each(protosIn(good))("for %s", async (proto) => {
    const code = generate(files, [proto]);
    const name = proto.replace(/\.proto$/, "_postbox.ts");
    expect(Object.keys(code)).toEqual(proto.endsWith("no_events.proto") ? [] : [name]);
    for (const [file, content] of Object.entries(code)) {
      await expect(content).toMatchFileSnapshot(join(project, "fixtures", "gen", file));
    }
  });

  it("stands beside the code of protoc-gen-es for the same files", async () => {
    const request = toBinary(CodeGeneratorRequestSchema, requestFor(files, protosIn(good)));
    const ran = await run(project, "protoc-gen-es", [], request);
    expect(ran.code, ran.text).toBe(0);
    const { file } = fromBinary(CodeGeneratorResponseSchema, ran.stdout);
    expect(file).toHaveLength(protosIn(good).length);
    for (const { name, content } of file) {
      await expect(content).toMatchFileSnapshot(join(project, "fixtures", "gen", name));
    }
  });

  it("is JavaScript with declarations unless it is told otherwise", async () => {
    const code = generate(files, ["fixtures/shop/v1/orders.proto"], "import_extension=js");
    expect(Object.keys(code)).toEqual(["fixtures/shop/v1/orders_postbox.js", "fixtures/shop/v1/orders_postbox.d.ts"]);
    for (const [file, content] of Object.entries(code)) {
      await expect(content).toMatchFileSnapshot(join(project, "fixtures", "gen-js", file));
    }
  });

  it("is the same with options that only protoc-gen-es knows", async () => {
    const more = `${parameter},json_types=true,valid_types=legacy_required,erasable_syntax=true`;
    const ran = await run(
      project,
      "protoc-gen-es",
      [],
      toBinary(CodeGeneratorRequestSchema, requestFor(files, ["no-package.proto"], more)),
    );
    expect(fromBinary(CodeGeneratorResponseSchema, ran.stdout)).toMatchObject({ error: "", file: [{}] });
    const codes = [parameter, more].map((options) => generate(files, ["no-package.proto"], options));
    // The first line names the options.
    const [without, withMore] = codes.map((code) => code["no-package_postbox.ts"]?.replace(/^.*\n/, ""));
    expect(withMore).toBe(without);
    expect(withMore).toContain("export const Ping");
  });

  it("is an empty file for no events where empty files are kept", () => {
    const code = generate(files, ["fixtures/shop/v1/no_events.proto"], `${parameter},keep_empty_files=true`);
    expect(code).toEqual({ "fixtures/shop/v1/no_events_postbox.ts": "" });
  });

  it("is the same for files with the options of protoevent, whose numbers ours have", async () => {
    const legacy = await filesOf(join(project, "fixtures", "protoevent"));
    const code = Object.values(generate(legacy, ["legacy/v1/legacy.proto"])).join("");
    expect(code).toContain('export const BookCreated: ProtobufEvent<"legacy.v1.BookCreated", ');
    expect(code).toContain('export const BookRemoved: ProtobufEvent<"legacy.v1.BookGone", ');
  });
});

describe("what cannot be generated", () => {
  const refusalOf = (...protos: string[]): string => {
    try {
      return `nothing was wrong with ${protos}: ${Object.keys(generate(files, protos))}`;
    } catch (error) {
      return (error as Error).message;
    }
  };

  it("is told all at once, with file, line, message and what to change", async () => {
    const faults = protosIn(join(project, "fixtures", "bad")).map((proto) => refusalOf(proto));
    await expect(`${faults.join("\n\n")}\n`).toMatchFileSnapshot(join(project, "fixtures", "bad", "errors.txt"));
  });

  it("is a type that another file has", () => {
    expect(refusalOf("bad/forgotten.proto", "bad/topic.proto")).toMatch(/^bad\/forgotten[^\n]*\nbad\/topic/);
    const copy = clone(FileDescriptorProtoSchema, files.find(({ name }) => name === "no-package.proto") as Files[0]);
    copy.name = "copy.proto";
    for (const message of copy.messageType) message.name = "Ping";
    expect(() => generate([...files, copy], ["no-package.proto", "copy.proto"])).toThrow(
      "copy.proto:7: message Ping: its type on the wire, 'Ping', is that of PingEvent in no-package.proto:7; give one",
    );
  });

  it("is an unknown option", () => {
    expect(() => generate(files, ["no-package.proto"], "json_types=true,targets=ts")).toThrow("'targets' is unknown");
  });
});
