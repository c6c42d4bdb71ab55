// The shapes of the HTTP API that the console reads, and one way to read them.
// The console shows nothing that these answers do not hold.

import { read, Refusal } from "./ask";
import type { Agent, FleetTotals } from "./fleet/types";
import type { Job } from "./imports/types";

export interface Status {
  version: string;
  uptime_ms: number;
  now_ms: number;
  endpoints: Record<string, string>;
  mqtt: MqttStatus | null;
}

export interface MqttStatus {
  clients_connected: number;
  messages_received_total: number;
  messages_sent_total: number;
  messages_dropped_total: number;
  subscriptions: number;
  retained: number;
}

export interface Topic {
  name: string;
  wire_name: string;
  partitions: number;
  records_in_total: number;
  /** Not known of a topic in a Kafka cluster. */
  bytes_in_total: number | null;
  bytes_stored: number | null;
  durability: string;
}

export interface Statement {
  id: string;
  name: string | null;
  language: string;
  text: string;
  source: string;
  sink: string | null;
  status: string;
  error: string | null;
  received_total: number;
  filtered_total: number;
  emitted_total: number;
  errored_total: number;
  late_total: number;
  dropped_total: number;
  emitted_from_total: number;
  in_flight: number;
  state_bytes: number;
  format: string;
  output: string;
  targets: string[];
  generation: number;
  waiting_rows: number;
  lag_records: number | null;
  latency_p50_us: number | null;
  latency_p99_us: number | null;
  cpu_share: number;
}

export interface Snapshot {
  at_ms: number;
  status: Status;
  /** Null where this process does not run the fleet. */
  fleet: FleetTotals | null;
  /** The first few. */
  agents: Agent[];
  topics: Topic[];
  statements: Statement[];
  jobs: Job[];
}

/** Reads everything that the page shows; a part that this process does not run reads as empty. */
export async function readSnapshot(signal: AbortSignal): Promise<Snapshot> {
  const [status, fleet, agents, topics, statements, imports] = await Promise.all([
    read<Status>("api/v1/status", signal),
    readPart<FleetTotals | null>("api/v1/fleet", null, signal),
    readPart<{ agents: Agent[] }>("api/v1/agents?limit=20", { agents: [] }, signal),
    readPart<{ topics: Topic[] }>("api/v1/topics", { topics: [] }, signal),
    readPart<{ statements: Statement[] }>("api/v1/statements", { statements: [] }, signal),
    readPart<{ jobs: Job[] }>("api/v1/imports", { jobs: [] }, signal),
  ]);
  return {
    at_ms: performance.now(),
    status,
    fleet,
    agents: agents.agents,
    topics: topics.topics,
    statements: statements.statements,
    jobs: imports.jobs,
  };
}

async function readPart<T>(path: string, absent: T, signal: AbortSignal): Promise<T> {
  try {
    return await read<T>(path, signal);
  } catch (error) {
    if (error instanceof Refusal && error.status === 404) {
      return absent;
    }
    throw error;
  }
}
