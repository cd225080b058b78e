import { randomBytes } from "node:crypto";
import { cpSync, mkdirSync, readdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { expect, it, onTestFinished, vi } from "vitest";
import { buf, run } from "../../fixtures/programs.js";

const root = join(import.meta.dirname, "..", "..", "..", "..");
const example = join(root, "examples", "04-books");
const guide = readFileSync(join(root, "docs", "guides", "protobuf.md"), "utf8");

// These tests run compilers and generators in processes, one after another.
vi.setConfig({ testTimeout: 60_000 });

/** The example's `.proto` in a user's project, with node_modules inside it. */
function project(): string {
  const folder = join(root, ".tmp", `books_${randomBytes(6).toString("hex")}`);
  mkdirSync(folder, { recursive: true });
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  for (const part of ["proto", "buf.yaml", "buf.gen.yaml"])
    cpSync(join(example, part), join(folder, part), { recursive: true });
  symlinkSync(join(root, "node_modules"), join(folder, "node_modules"));
  return folder;
}

function change(file: string, from: string, to: string): void {
  const text = readFileSync(file, "utf8");
  expect(text).toContain(from);
  writeFileSync(file, text.replace(from, to));
}

const protoIn = (folder: string) => join(folder, "proto", "example", "books", "v1", "books.proto");
const generatedIn = (folder: string, version = "v1") => join(folder, "src", "gen", "example", "books", version);

async function succeeds(folder: string, program: string, ...args: readonly string[]): Promise<void> {
  const { code, text } = await run(folder, program, args);
  expect([code, text]).toEqual([0, ""]);
}

// To accept the changes: npx vitest run packages/protobuf/src/generator --update
it("buf generates the code that the example has", async () => {
  const folder = project();
  await succeeds(folder, "buf", "generate");
  for (const version of ["v1", "v2"]) {
    const files = readdirSync(generatedIn(folder, version)).sort();
    expect(files).toEqual(["books_pb.ts", "books_postbox.ts"]);
    for (const file of files) {
      const code = readFileSync(join(generatedIn(folder, version), file), "utf8");
      await expect(code).toMatchFileSnapshot(join(generatedIn(example, version), file));
    }
  }
});

it("our own options are generated from our own .proto", async () => {
  const folder = project();
  const ours = join(root, "packages", "protobuf");
  const template = readFileSync(join(ours, "buf.gen.yaml"), "utf8").replace("out: src", `out: ${folder}`);
  await succeeds(ours, "buf", "generate", "--template", template.replace(/^#.*\n/, ""));
  const code = readFileSync(join(folder, "postbox", "v1", "options_pb.ts"), "utf8");
  await expect(code).toMatchFileSnapshot(join(ours, "src", "postbox", "v1", "options_pb.ts"));
});

const use = `
import { createPublisher, createRouter, type Sender } from "postbox";
import { BookCreated, books, createBooksPublisher, onBookCreated } from "./gen/example/books/v1/books_postbox.js";

export async function use(sender: Sender): Promise<void> {
  const publisher = createBooksPublisher(createPublisher(sender, { source: "/books" }));
  const { id }: { id: string } = await publisher.bookCreated({ id: "1", priceCents: 5n, createdAt: { seconds: 1n } });
  // @ts-expect-error: an int64 is a bigint
  await publisher.bookCreated({ id, priceCents: 5 });
  const handlers = onBookCreated(createRouter("b"), (book, context) => {
    const at: bigint | undefined = book.createdAt?.seconds;
    const parts: [string, bigint, bigint | undefined, number] = [book.title, book.priceCents, at, context.attempt];
    // @ts-expect-error: no such field
    return void [parts, book.price_cents];
  });
  // @ts-expect-error: handled already
  onBookCreated(handlers, () => {});
  const [first]: readonly [typeof BookCreated, unknown] = books.events;
  first.type satisfies "example.books.v1.BookCreated";
}
`;
const config = {
  compilerOptions: {
    module: "nodenext",
    target: "es2023",
    strict: true,
    noEmit: true,
    types: ["node"],
    exactOptionalPropertyTypes: true,
  },
  include: ["src"],
};

it.each(["target=ts", "target=js+dts"])("a project that is generated with %s compiles, strictly", async (target) => {
  const folder = project();
  change(join(folder, "buf.gen.yaml"), "target=ts", target);
  change(join(folder, "buf.gen.yaml"), "target=ts", target);
  await succeeds(folder, "buf", "generate");
  writeFileSync(join(folder, "src", "use.ts"), use);
  writeFileSync(join(folder, "package.json"), JSON.stringify({ type: "module" }));
  writeFileSync(join(folder, "tsconfig.json"), JSON.stringify(config));
  await succeeds(folder, process.execPath, join(root, "node_modules", "typescript", "bin", "tsc"), "-p", ".");
});

it("buf has nothing to say about our .proto, nor about the example's", async () => {
  await succeeds(join(root, "packages", "protobuf"), "buf", "lint", "proto");
  await succeeds(project(), "buf", "lint");
});

it("buf finds what would break those who read, as the guide says", async () => {
  const folder = project();
  const commands = guide.matchAll(/^npx buf (build|breaking) (.*)$/gm);
  const [build, breaking] = [...commands].map(([, verb, args = ""]) => [verb as string, ...args.split(" ")]);
  await succeeds(folder, "buf", ...(build ?? []));
  await succeeds(folder, "buf", ...(breaking ?? []));
  // The message also says that the options do not matter.
  change(protoIn(folder), '(postbox.v1.key) = "id"', '(postbox.v1.key) = "title"');
  await succeeds(folder, "buf", ...(breaking ?? []));
  change(protoIn(folder), "int64 price_cents = 4", "string price_cents = 4");
  const { code, text } = await buf(folder, ...(breaking ?? []));
  expect(code).toBe(100);
  expect(text).toContain('Field "4" with name "price_cents" on message "BookCreatedEvent" changed type');
});

it("buf passes on what is wrong", async () => {
  const folder = project();
  change(protoIn(folder), '(postbox.v1.key) = "id"', '(postbox.v1.key) = "isbn"');
  const { code, text } = await buf(folder, "generate");
  expect(code).toBe(1);
  expect(text).toContain(
    "example/books/v1/books.proto:9: message BookCreatedEvent: (postbox.v1.key) names the field 'isbn', which it " +
      "does not have; " +
      "name one of id, title, author, price_cents",
  );
});

it("says what to install where protoplugin is missing", async () => {
  const folder = project();
  cpSync(join(root, "packages", "protobuf", "bin"), join(folder, "bin"), { recursive: true });
  rmSync(join(folder, "node_modules"));
  // Outside of this repository, its node_modules cannot be found.
  const elsewhere = join(tmpdir(), basename(folder));
  cpSync(folder, elsewhere, { recursive: true });
  onTestFinished(() => rmSync(elsewhere, { recursive: true, force: true }));
  writeFileSync(join(elsewhere, "package.json"), JSON.stringify({ type: "module" }));
  const { code, text } = await run(elsewhere, process.execPath, [join(elsewhere, "bin", "protoc-gen-postbox.js")]);
  expect([code, text]).toEqual([
    1,
    "protoc-gen-postbox: @bufbuild/protoplugin is not installed; npm install -D @bufbuild/protoplugin\n",
  ]);
});

it("protoc generates the same, as the guide calls it", async () => {
  const [byBuf, byProtoc] = [project(), project()];
  await succeeds(byBuf, "buf", "generate");
  const commands = /```sh\n(mkdir .*?\nprotoc .*?)```/s.exec(guide)?.[1];
  await succeeds(byProtoc, "sh", "-ec", commands as string);
  for (const file of ["books_pb.ts", "books_postbox.ts"]) {
    const [code, expected] = [byProtoc, byBuf].map((each) => readFileSync(join(generatedIn(each), file), "utf8"));
    // The first line names the parameters, which differ.
    expect(code?.replace(/^.*\n/, "")).toBe(expected?.replace(/^.*\n/, ""));
  }
});

it("protoc passes on what is wrong", async () => {
  const folder = project();
  change(protoIn(folder), '(postbox.v1.key) = "id"', '(postbox.v1.key) = "isbn"');
  const { code, text } = await run(folder, "protoc", [
    ...["-I", "proto", "-I", "node_modules/@postbox/protobuf/proto"],
    ...["--plugin=node_modules/.bin/protoc-gen-postbox", "--postbox_out=."],
    "example/books/v1/books.proto",
  ]);
  expect(code).toBe(1);
  expect(text).toContain("example/books/v1/books.proto:9: message BookCreatedEvent: (postbox.v1.key) names");
});
