import type { DescFile } from "@bufbuild/protobuf";
import type { EventDefinition } from "postbox";

/** The events of one `.proto` file, for a broker's topology (`sender.setup(books.events)`) and for catalogs. */
export interface EventService<Events extends readonly EventDefinition[] = readonly EventDefinition[]> {
  /** The protobuf package, or the file name if there is none. */
  readonly name: string;
  readonly file: DescFile;
  /** In file order. */
  readonly events: Events;
}
