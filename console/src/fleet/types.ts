// The shapes of the fleet's part of the HTTP API, as far as the pages read them.

export interface FleetTotals {
  agents: number;
  online: number;
  missing: number;
  parked: number;
  flows_deployed: number;
  flows_pending: number;
  flows_failed: number;
  classes: number;
  heartbeats_total: number;
}

export interface Agent {
  id: string;
  class: string | null;
  class_given: boolean;
  agent_type: string | null;
  agent_version: string | null;
  state: "online" | "missing";
  last_seen_ms: number;
  first_seen_ms: number;
  hostname: string | null;
  manifest_hash: string | null;
  flow_id: string | null;
  desired_flow_id: string | null;
  flow_state: "none" | "pending" | "deployed" | "failed";
  resource_state: "none" | "pending" | "synced" | "failed";
  heartbeats_total: number;
  heartbeat_interval_ms: number | null;
  duplicate_device: string | null;
}

export interface AgentsPage {
  agents: Agent[];
  next: string | null;
}

export interface Operation {
  id: string;
  agent_id: string;
  operation: string;
  operand: string;
  flow_id: string | null;
  state: string;
  created_ms: number;
  updated_ms: number;
  attempts: number;
  details: string;
}

export interface Queue {
  name?: string;
  size?: number;
  sizeMax?: number;
  dataSize?: number;
  dataSizeMax?: number;
}

export interface Repository {
  size?: number;
  sizeMax?: number;
  dataSize?: number;
  dataSizeMax?: number;
  running?: boolean;
}

export interface ProcessorStatus {
  id?: string;
  flowFilesIn?: number;
  flowFilesOut?: number;
  bytesIn?: number;
  bytesOut?: number;
  invocations?: number;
  runStatus?: string;
}

export interface Heartbeat {
  deviceInfo?: {
    identifier?: string;
    systemInfo?: { machineArch?: string; operatingSystem?: string; physicalMem?: number; vCores?: number; memoryUsage?: number; cpuUtilization?: number };
    networkInfo?: { hostname?: string; ipAddress?: string };
  };
  agentInfo?: {
    status?: {
      uptime?: number;
      repositories?: Record<string, Repository>;
      resourceConsumption?: { memoryUsage?: number; cpuUtilization?: number };
    };
  };
  flowInfo?: {
    queues?: Record<string, Queue>;
    processorStatuses?: ProcessorStatus[];
    runStatus?: string;
  };
}

export interface AgentDetail extends Agent {
  operations: Operation[];
  heartbeat: Heartbeat | null;
}

export interface FleetClass {
  name: string;
  agents: number;
  agents_online: number;
  agents_deployed: number;
  flow_id: string | null;
  flow_version: number | null;
}

export interface Flow {
  flow_id: string;
  version: number;
  shape: string;
  sha256: string;
  bytes: number;
  created_ms: number;
  current: boolean;
}

export interface Difference {
  place: string;
  change: "added" | "removed" | "changed";
  from: unknown;
  to: unknown;
}

export interface Rollout {
  id: string;
  flow_id: string;
  previous_flow_id: string | null;
  state: "running" | "paused" | "halted" | "aborted" | "rolled_back" | "done";
  reason: string;
  created_ms: number;
  batch_agents: number;
  batch_interval_ms: number;
  canary_percent: number;
  failures_percent: number;
  progress: { agents: number; reached: number; deployed: number; failed: number; pending: number; offline: number };
}

export interface FleetEvent {
  id: string;
  at_ms: number;
  level: "debug" | "info" | "warn" | "error";
  kind: string;
  class: string | null;
  agent_id: string | null;
  message: string;
}
