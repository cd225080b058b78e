// Events as a whole: by their types, and as documents.
export type { AsyncApiDocument, AsyncApiOptions, AsyncApiPayload } from "../event/async-api.js";
export {
  type Catalog,
  type CatalogEntry,
  type CatalogPublisher,
  defineCatalog,
  type JsonSchemaDocumentOptions,
  type TakesEvents,
} from "../event/catalog.js";
export type { JsonSchemaOptions } from "../event/json-schema.js";
export type {
  JsonSchema,
  JsonSchemaSource,
  JsonSchemaTarget,
  JsonSchemaWanted,
} from "../event/standard-schema.js";
