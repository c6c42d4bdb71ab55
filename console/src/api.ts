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
  start: string;
  lateness: string;
  policies: Record<string, unknown> | null;
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
  topics: Busiest<Topic>;
  statements: Busiest<Statement>;
  jobs: Job[];
  /** Why parts are empty that this process runs: the caller may not see them, or they do not answer. */
  withheld: string[];
}

/** The busiest of a kind, as many as a page can show, and figures of all. */
export interface Busiest<T> {
  shown: T[];
  count: number;
  /** Records or events that went in. */
  total: number;
}

/** Reads everything that the page shows; a part that this process does not run reads as empty. */
export async function readSnapshot(signal: AbortSignal): Promise<Snapshot> {
  const withheld: string[] = [];
  const readPart = async <T>(path: string, absent: T): Promise<T> => {
    try {
      return await read<T>(path, signal);
    } catch (error) {
      // Who is asked to log in sees nothing at all; a process that does not answer is not there.
      if (!(error instanceof Refusal) || error.status === 401) {
        throw error;
      }
      if (error.status !== 404) {
        withheld.push(error.message);
      }
      return absent;
    }
  };
  const [status, fleet, agents, topics, statements, imports] = await Promise.all([
    read<Status>("api/v1/status", signal),
    readPart<FleetTotals | null>("api/v1/fleet", null),
    readPart<{ agents: Agent[] }>("api/v1/agents?limit=20", { agents: [] }),
    readPart<{ topics: Topic[] }>("api/v1/topics", { topics: [] }),
    readPart<{ statements: Statement[] }>("api/v1/statements", { statements: [] }),
    readPart<{ jobs: Job[] }>("api/v1/imports", { jobs: [] }),
  ]);
  return {
    at_ms: performance.now(),
    status,
    fleet,
    agents: agents.agents,
    topics: busiest(topics.topics, (topic) => topic.records_in_total),
    statements: busiest(statements.statements, (statement) => statement.received_total),
    jobs: [...imports.jobs.filter(isOpen), ...imports.jobs.filter((job) => !isOpen(job))].slice(0, SHOWN_MAX),
    withheld: [...new Set(withheld)],
  };
}

/** Whether a job is still to be heard of; those go first where not all fit. */
function isOpen(job: Job): boolean {
  return job.state === "uploading" || job.state === "running" || job.state === "paused";
}

function busiest<T>(all: T[], taken: (one: T) => number): Busiest<T> {
  const shown = all.length <= SHOWN_MAX ? all : [...all].sort((a, b) => taken(b) - taken(a)).slice(0, SHOWN_MAX);
  return { shown, count: all.length, total: all.reduce((sum, one) => sum + taken(one), 0) };
}

/** Rows of one table: more cannot be drawn every second, nor read. */
const SHOWN_MAX = 100;
