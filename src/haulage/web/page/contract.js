// What the API says, as types. For the editor and the type checker only: no browser loads this file.

/**
 * @typedef {object} Progress
 * @property {number | null} processed
 * @property {number | null} total
 * @property {string} unit
 * @property {number | null} [logical_count]
 * @property {string | null} [logical_count_unit]
 */

/**
 * @typedef {object} FileFacts
 * @property {string} name
 * @property {string} media_type
 * @property {number} bytes
 * @property {number | null} rows
 * @property {string} sha256
 * @property {string | null} snapshot_at
 * @property {Column[] | null} columns
 */

/** @typedef {{key: string, header: string, type: string | null}} Column */
/** @typedef {{code: string, message?: string | null, [fact: string]: unknown}} Coded */

/**
 * A run as every door shows it; null is "not known". The request itself (`parameters` to `compression`)
 * is what "export again" sends; without it the reader is asked to fill in the form.
 * @typedef {object} Run
 * @property {string} id
 * @property {string} token
 * @property {string} dataset
 * @property {string | null} parent_kind
 * @property {string | null} parent What of the host's it belongs to, if it does.
 * @property {string} format
 * @property {"queued" | "running" | "ready" | "failed" | "cancelled" | "expired"} state
 * @property {"counting" | "aggregating" | "writing" | "publishing" | null} phase
 * @property {string | null} cancel_requested_at
 * @property {Progress | null} progress
 * @property {number | null} queue_position
 * @property {number} revision
 * @property {string} requested_at
 * @property {string | null} started_at
 * @property {string | null} heartbeat_at
 * @property {string | null} finished_at
 * @property {string | null} expires_at
 * @property {FileFacts | null} file
 * @property {boolean | null} complete
 * @property {(Coded | string)[]} notices
 * @property {Coded | null} failure
 * @property {Record<string, unknown>} [parameters]
 * @property {string[] | null} [columns] Of a grouped export its measures.
 * @property {string[] | null} [group_by]
 * @property {string | string[][] | null} [subtotals]
 * @property {string[] | null} [pivot]
 * @property {Record<string, unknown> | null} [options]
 * @property {string | null} [compression]
 */

/** `missing` is what to install before it can be chosen. @typedef {{value: unknown, label?: string | null, description?: string | null, missing?: string | null}} Choice */

/**
 * @typedef {object} Parameter
 * @property {string} name
 * @property {"text" | "integer" | "decimal" | "boolean" | "date" | "timestamp" | "choice"} type
 * @property {string | null} label
 * @property {boolean} required
 * @property {unknown} default
 * @property {boolean} list
 * @property {(Choice | string)[] | null} choices
 */

/**
 * @typedef {object} FormatOption
 * @property {string} name
 * @property {string | null} label
 * @property {(Choice | string)[] | null} choices
 * @property {unknown} default
 */

/**
 * @typedef {object} Format
 * @property {string} name
 * @property {string} label
 * @property {FormatOption[]} options
 * @property {(Choice | string)[]} compressions
 * @property {string | null} missing What to install, where the format cannot be written yet.
 */

/**
 * @typedef {object} Dataset
 * @property {string} name
 * @property {string} label
 * @property {string | null} description
 * @property {boolean} permitted
 * @property {{kind: string, label: string, type: "text" | "integer"} | null} parent
 * @property {Parameter[]} parameters
 * @property {Format[]} formats
 * @property {Column[] | null} columns
 * @property {DimensionOf[]} dimensions
 * @property {MeasureOf[]} measures
 */

/** @typedef {{name: string, label: string}} DimensionOf */
/** @typedef {{name: string, label: string, function: "count" | "count_distinct" | "sum" | "avg" | "min" | "max"}} MeasureOf */

/**
 * @typedef {object} ExportRequest
 * @property {string} dataset
 * @property {string} format
 * @property {Record<string, unknown>} parameters
 * @property {unknown} [parent]
 * @property {string[]} [columns]
 * @property {string[]} [group_by]
 * @property {string | string[][]} [subtotals]
 * @property {string[]} [pivot]
 * @property {string} [compression]
 * @property {Record<string, unknown>} [options]
 */

/**
 * @typedef {object} Counts
 * @property {number | null} output_count
 * @property {number | null} visible_output_count
 * @property {number | null} population_count
 * @property {boolean} population_count_computed
 * @property {string | null} counted_at
 */

/**
 * First rows of what an export would write. Of groups: so many first columns say what a row is, then come so many dimensions and measures.
 * @typedef {object} PreviewOf
 * @property {Column[]} columns
 * @property {unknown[][]} rows
 * @property {boolean} more
 * @property {{marks: number, dimensions: number, measures: number} | null} grouped
 * @property {number | null} logical_count
 * @property {string | null} snapshot_at
 */

/** @typedef {{account: string | null, tenant: string | null, grants: string[], csrf: string | null, sign_out?: boolean}} Session */
/** @typedef {{used_bytes: number | null, budget_bytes: number | null, reserved_bytes: number | null, own_bytes: number | null}} Storage */
/** @typedef {{items: Run[], next_cursor: string | null}} RunPage */

export {};
