import type { DescFile } from "@bufbuild/protobuf";
import type { EventDefinition } from "postbox";

/** The events of one `.proto` file: for the topology of a broker (`sender.setup(books.events)`) and for catalogs. */
export interface EventService<Events extends readonly EventDefinition[] = readonly EventDefinition[]> {
  /** The package; without one, the file. */
  readonly name: string;
  readonly file: DescFile;
  /** In the order of the file. */
  readonly events: Events;
}
