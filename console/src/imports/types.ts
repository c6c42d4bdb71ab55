// The shapes of the imports' HTTP API that the console reads.

export type JobState = "uploading" | "running" | "paused" | "completed" | "completed_with_rejects" | "failed" | "cancelled";

export interface Job {
  id: string;
  tenant: string;
  name: string;
  format: string;
  class: "bulk" | "interactive";
  sink: "both" | "records" | "topic";
  /** Null where the records go to the table alone. */
  topic: string | null;
  profile: Record<string, unknown>;
  /** The job whose rejected records these are. */
  retry_of: string | null;
  /** A file of the server's own, where the job reads one. */
  path: string | null;
  /** The address that the file was fetched from, without its query. */
  url: string | null;
  state: JobState;
  /** About; exact once the job has ended. */
  records_total: number;
  records_done: number;
  records_created: number;
  records_updated: number;
  records_skipped: number;
  records_rejected: number;
  rejects_left_out?: number;
  /** While the file comes in, what has come. */
  bytes_total: number;
  bytes_done: number;
  slices_done: number;
  created_ms: number;
  updated_ms: number;
  error: string | null;
}

export interface JournalEntry {
  ordinal: number;
  offset: number;
  kind: "rejected" | "repaired" | "skipped";
  reason: string;
}

export interface JournalPage {
  entries: JournalEntry[];
  /** The ordinal after which the next page begins. */
  next: number | null;
}

/** What a tenant has imported, over all its jobs. */
export interface TenantUse {
  tenant: string;
  weight: number;
  jobs: number;
  jobs_active: number;
  records_done: number;
  records_rejected: number;
  bytes_done: number;
  updated_ms: number;
}

/** A tenant as it is kept; a server that keeps no quotas tells its weight alone. */
export interface Tenant {
  tenant: string;
  weight: number;
  class?: string;
  quotas?: Quotas;
  /** The collection that its records go to; null for its own topics. */
  collection?: string | null;
  /** Where they are to go: a collection or `own`; null when they are there. */
  switching_to?: string | null;
  retention_ms?: number | null;
  members?: string[];
}

/** The most of each; null where nothing is bounded. */
export interface Quotas {
  bytes_in_per_second: number | null;
  bytes_out_per_second: number | null;
  records_per_second: number | null;
  in_flight: number | null;
  stored_bytes: number | null;
}

export interface TenantUsage {
  now_ms: number;
  rates: { bytes_in_per_second: number; bytes_out_per_second: number; records_per_second: number };
  in_flight: number;
  stored_bytes: number;
  wait_ms: number;
  topics: { topic: string; is_shared: boolean; records: number; bytes: number; oldest_ms: number | null }[];
  backlog: { group: string; topic: string; records: number; oldest_ms: number | null }[];
}

export interface TenantsPage<T> {
  tenants: T[];
  next: string | null;
}
