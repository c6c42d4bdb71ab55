// One agent: who it is, what it was told and what it says of itself.

import type { ReactNode } from "react";

import { useAsked } from "../ask";
import { now } from "../clock";
import { age, bytes, count } from "../format";
import { useHistory } from "../history";
import { Ago, Badge, Fill, FLOW_TONES, Section, Sub, Trouble } from "../parts";
import { RatePlot } from "../plot";
import { address } from "../route";
import { EventsTable } from "./events";
import { GivenClass } from "./given";
import type { AgentDetail, FleetEvent, Heartbeat, Operation, Queue } from "./types";

export function AgentPage({ id }: { id: string }) {
  const asked = useAsked<AgentDetail>(`api/v1/agents/${encodeURIComponent(id)}`, 2000);
  const events = useAsked<{ events: FleetEvent[] }>(`api/v1/events?limit=20&agent=${encodeURIComponent(id)}`, 5000);
  const agent = asked.value;
  const queues = Object.entries(agent?.heartbeat?.flowInfo?.queues ?? {}).slice(0, QUEUES_PLOTTED);
  const sizes = Object.fromEntries(queues.map(([key, queue]) => [key, queue.size ?? 0]));
  const history = useHistory(asked.at_ms, sizes);
  return (
    <main>
      <h2 className="title">{id} {agent !== null && <Badge kind={agent.state === "online" ? "good" : "bad"}>{agent.state}</Badge>}</h2>
      <Trouble text={asked.error} />
      {agent === null && asked.error === null && <p className="empty">Reading…</p>}
      {agent !== null && (
        <>
          <div className="plots">
            <Facts agent={agent} />
            {queues.length > 0 && (
              <figure>
                <figcaption>FlowFiles in queues</figcaption>
                <RatePlot rates={history} unit="FlowFiles" lines={queues.map(([key, queue]) => ({ key, label: queue.name ?? key }))} />
              </figure>
            )}
          </div>
          {(agent.class === null || agent.class_given) && <GivenClass agent={agent} again={asked.again} />}
          <Queues queues={Object.entries(agent.heartbeat?.flowInfo?.queues ?? {})} />
          <Repositories heartbeat={agent.heartbeat} />
          <Processors heartbeat={agent.heartbeat} />
          <Operations operations={agent.operations} />
          <EventsTable asked={events} empty="Nothing is known to have happened to it." />
          <section>
            <details>
              <summary>The last heartbeat, whole</summary>
              <pre tabIndex={0}>{agent.heartbeat === null ? "It was not kept." : JSON.stringify(agent.heartbeat, null, 2)}</pre>
            </details>
          </section>
        </>
      )}
    </main>
  );
}

function Facts({ agent }: { agent: AgentDetail }) {
  const system = agent.heartbeat?.deviceInfo?.systemInfo;
  const status = agent.heartbeat?.agentInfo?.status;
  const facts: [string, ReactNode][] = [
    ["Class", agent.class === null ? "none: parked" : <><a href={address(["classes", agent.class])}>{agent.class}</a>{agent.class_given && <Sub>given by an operator</Sub>}</>],
    ["Flow", <><Badge kind={FLOW_TONES[agent.flow_state]}>{agent.flow_state}</Badge><Sub>runs {agent.flow_id ?? "none"}</Sub>{agent.flow_state !== "deployed" && agent.desired_flow_id !== null && <Sub>should run {agent.desired_flow_id}</Sub>}</>],
    ["Resources", agent.resource_state],
    ["Build", `${agent.agent_type ?? "not described yet"} ${agent.agent_version ?? ""}`],
    ["Host", `${agent.hostname ?? "–"}${system?.operatingSystem === undefined ? "" : `, ${system.operatingSystem} ${system.machineArch ?? ""}`}`],
    ["Last seen", <><Ago at_ms={agent.last_seen_ms} />{agent.heartbeat_interval_ms !== null && `, calls every ${age(agent.heartbeat_interval_ms)}`}</>],
    ["Known for", age(now() - agent.first_seen_ms)],
    ["Heartbeats", count(agent.heartbeats_total)],
  ];
  if (status?.uptime !== undefined) {
    facts.push(["Up for", age(status.uptime)]);
  }
  if (status?.resourceConsumption?.memoryUsage !== undefined) {
    facts.push(["Its memory", bytes(status.resourceConsumption.memoryUsage)]);
  }
  if (agent.duplicate_device !== null) {
    facts.push(["Two devices", <Badge kind="bad">{agent.duplicate_device} calls under this name too</Badge>]);
  }
  return (
    <figure>
      <dl>{facts.map(([name, value]) => <div key={name}><dt>{name}</dt><dd>{value}</dd></div>)}</dl>
    </figure>
  );
}

function Queues({ queues }: { queues: [string, Queue][] }) {
  if (queues.length === 0) {
    return null;
  }
  return (
    <Section id="queues" title="Queues" empty="" size={queues.length}>
      <thead><tr><th scope="col">Queue</th><th scope="col">FlowFiles</th><th scope="col">Bytes</th></tr></thead>
      <tbody>
        {queues.map(([key, queue]) => (
          <tr key={key}>
            <th scope="row">{queue.name ?? key}</th>
            <td><Fill value={queue.size ?? 0} max={queue.sizeMax ?? null} text={count(queue.size ?? 0)} /></td>
            <td><Fill value={queue.dataSize ?? 0} max={queue.dataSizeMax ?? null} text={bytes(queue.dataSize ?? 0)} /></td>
          </tr>
        ))}
      </tbody>
    </Section>
  );
}

function Repositories({ heartbeat }: { heartbeat: Heartbeat | null }) {
  const all = Object.entries(heartbeat?.agentInfo?.status?.repositories ?? {});
  if (all.length === 0) {
    return null;
  }
  return (
    <Section id="repositories" title="Repositories" empty="" size={all.length}>
      <thead><tr><th scope="col">Repository</th><th scope="col">Entries</th><th scope="col">Bytes</th></tr></thead>
      <tbody>
        {all.map(([name, one]) => (
          <tr key={name}>
            <th scope="row">{name}</th>
            <td><Fill value={one.size ?? 0} max={one.sizeMax ?? null} text={one.size === undefined ? "–" : count(one.size)} /></td>
            <td><Fill value={one.dataSize ?? 0} max={one.dataSizeMax ?? null} text={bytes(one.dataSize ?? null)} /></td>
          </tr>
        ))}
      </tbody>
    </Section>
  );
}

function Processors({ heartbeat }: { heartbeat: Heartbeat | null }) {
  const all = heartbeat?.flowInfo?.processorStatuses ?? [];
  if (all.length === 0) {
    return null;
  }
  return (
    <Section id="processors" title="Processors" empty="" size={all.length} note="since their last report">
      <thead><tr><th scope="col">Processor</th><th scope="col" className="number">In</th><th scope="col" className="number">Out</th><th scope="col" className="number">Bytes in</th><th scope="col" className="number">Bytes out</th><th scope="col" className="number">Runs</th></tr></thead>
      <tbody>
        {all.map((one, index) => (
          <tr key={one.id ?? index}>
            <th scope="row">{one.id ?? "–"}</th>
            <td className="number">{count(one.flowFilesIn ?? 0)}</td>
            <td className="number">{count(one.flowFilesOut ?? 0)}</td>
            <td className="number">{bytes(one.bytesIn ?? 0)}</td>
            <td className="number">{bytes(one.bytesOut ?? 0)}</td>
            <td className="number">{count(one.invocations ?? 0)}</td>
          </tr>
        ))}
      </tbody>
    </Section>
  );
}

function Operations({ operations }: { operations: Operation[] }) {
  return (
    <Section id="operations" title="Operations" empty="It was told nothing yet." size={operations.length}>
      <thead><tr><th scope="col">Operation</th><th scope="col">State</th><th scope="col">Asked</th><th scope="col">Changed</th><th scope="col" className="number">Sent</th></tr></thead>
      <tbody>
        {operations.map((one) => (
          <tr key={one.id}>
            <th scope="row">{one.operation} {one.operand}<Sub>{one.flow_id}</Sub></th>
            <td><Badge kind={OPERATION_TONES[one.state] ?? "calm"}>{one.state}</Badge><Sub>{one.details === "" ? null : one.details}</Sub></td>
            <td><Ago at_ms={one.created_ms} /></td>
            <td><Ago at_ms={one.updated_ms} /></td>
            <td className="number">{one.attempts}</td>
          </tr>
        ))}
      </tbody>
    </Section>
  );
}

const OPERATION_TONES: Record<string, "good" | "bad" | "calm"> = { done: "good", failed: "bad", timed_out: "bad" };
const QUEUES_PLOTTED = 8;
