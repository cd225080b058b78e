import type { DescMessage } from "@bufbuild/protobuf";

/** Collects all problems, so that one run reports all of them. */
export interface Faults {
  /** `why` says what is wrong, then what to change. */
  add(message: DescMessage, why: string): void;
  /** Throws if there is any problem. */
  check(): void;
}

export function createFaults(): Faults {
  const lines: string[] = [];
  return {
    add: (message, why) => void lines.push(`${placeOf(message)}: message ${localTypeName(message)}: ${why}`),
    check() {
      if (lines.length > 0) throw new Error(lines.join("\n"));
    },
  };
}

/** File and line in the form that editors can open. */
export function placeOf(message: DescMessage): string {
  const path = pathOf(message);
  const location = message.file.proto.sourceCodeInfo?.location.find(
    (each) => each.path.length === path.length && each.path.every((step, at) => step === path[at]),
  );
  const line = location?.span[0];
  return `${message.file.name}.proto${line === undefined ? "" : `:${line + 1}`}`;
}

/** The message's full name without its package. */
function localTypeName({ typeName, file }: DescMessage): string {
  return file.proto.package === "" ? typeName : typeName.slice(file.proto.package.length + 1);
}

/** The path of a message in its file's descriptor: field numbers and indices. */
function pathOf({ file, parent, proto }: DescMessage): number[] {
  return parent === undefined
    ? [4, file.proto.messageType.indexOf(proto)]
    : [...pathOf(parent), 3, parent.proto.nestedType.indexOf(proto)];
}
