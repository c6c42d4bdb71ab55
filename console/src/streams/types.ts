// The shapes of the event store's part of the HTTP API, as far as the pages read them.

import type { Topic } from "../api";

export interface Setting {
  name: string;
  value: string | null;
  /** Set here; else its default holds. */
  is_set: boolean;
}

export interface TopicDetail extends Topic {
  offsets: { partition: number; start: number; end: number }[];
  /** Absent where another system keeps them. */
  config?: Setting[];
}

export interface Group {
  group: string;
  state: string;
  protocol_type: string;
  members: { member_id: string; client_id: string; host: string }[];
}

/** What a group has to do with a topic. */
export interface TopicGroup {
  group: string;
  state: string;
  members: number;
  partitions: number;
  /** Null where it has committed nothing there. */
  lag: number | null;
}

/** A key, a value or a header's value, or its beginning. */
export interface Part {
  type: "JSON" | "STRING" | "BINARY" | "AVRO" | "JSONSCHEMA" | "PROTOBUF";
  schema_id?: number;
  /** JSON or text as it stands; base64 where it is binary. */
  data: string;
  /** Of all of it. */
  bytes: number;
  is_cut: boolean;
}

export interface SeenRecord {
  partition: number;
  offset: number;
  timestamp_ms: number;
  headers: { name: string; value: Part | null }[];
  headers_left_out: number;
  key: Part | null;
  value: Part | null;
}

/** Where a partition of a group is, and where it would be. */
export interface Move {
  topic: string;
  partition: number;
  from: number | null;
  to: number;
}

export interface GroupOffset {
  topic: string;
  partition: number;
  /** Null where nothing is committed, as the lag is then. */
  current: number | null;
  end: number;
  lag: number | null;
  client_id: string | null;
  host: string | null;
}

export interface GroupDetail {
  group: string;
  kind: string;
  state: string;
  protocol_type: string;
  assignor: string | null;
  lag_total: number;
  members: { member_id: string; instance_id: string | null; client_id: string; host: string; partitions: unknown[] }[];
  offsets: GroupOffset[];
  config?: Setting[];
}
