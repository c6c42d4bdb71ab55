// The shapes of the HTTP API that the console reads, and one way to read them.
// The console shows nothing that these answers do not hold.

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

export interface Agent {
  id: string;
  class: string | null;
  agent_type: string | null;
  state: "online" | "missing";
  last_seen_ms: number;
  hostname: string | null;
  flow_id: string | null;
  desired_flow_id: string | null;
  flow_state: "none" | "pending" | "deployed" | "failed";
  heartbeats_total: number;
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
}

export interface Job {
  id: string;
  tenant: string;
  name: string;
  format: string;
  topic: string;
  state: string;
  records_total: number | null;
  records_done: number;
  records_rejected: number;
  bytes_total: number;
  bytes_done: number;
  error: string | null;
}

export interface Snapshot {
  at_ms: number;
  status: Status;
  agents: Agent[];
  topics: Topic[];
  statements: Statement[];
  jobs: Job[];
}

/** Reads everything that the page shows; a part that this process does not run reads as empty. */
export async function readSnapshot(signal: AbortSignal): Promise<Snapshot> {
  const [status, agents, topics, statements, imports] = await Promise.all([
    read<Status>("api/v1/status", signal),
    readPart<{ agents: Agent[] }>("api/v1/agents", { agents: [] }, signal),
    readPart<{ topics: Topic[] }>("api/v1/topics", { topics: [] }, signal),
    readPart<{ statements: Statement[] }>("api/v1/statements", { statements: [] }, signal),
    readPart<{ jobs: Job[] }>("api/v1/imports", { jobs: [] }, signal),
  ]);
  return {
    at_ms: performance.now(),
    status,
    agents: agents.agents,
    topics: topics.topics,
    statements: statements.statements,
    jobs: imports.jobs,
  };
}

async function read<T>(path: string, signal: AbortSignal): Promise<T> {
  const response = await fetch(path, { signal, headers: { Accept: "application/json" } });
  if (!response.ok) {
    throw new Error(`${path} answered ${response.status}`);
  }
  return (await response.json()) as T;
}

async function readPart<T>(path: string, absent: T, signal: AbortSignal): Promise<T> {
  const response = await fetch(path, { signal, headers: { Accept: "application/json" } });
  if (response.status === 404) {
    return absent;
  }
  if (!response.ok) {
    throw new Error(`${path} answered ${response.status}`);
  }
  return (await response.json()) as T;
}
