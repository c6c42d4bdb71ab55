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
