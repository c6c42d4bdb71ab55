// A class: its agents, its flow's versions, and how far a new one has come.

import { useState } from "react";

import { send, useActing, useAsked } from "../ask";
import type { Asked } from "../ask";
import { bytes, plural } from "../format";
import { Ago, Badge, Section, Shares, Sub, sizeOf, Trouble } from "../parts";
import { address } from "../route";
import { EventsTable } from "./events";
import { Publish, toAll } from "./publish";
import { RolloutCard } from "./rollout";
import type { Difference, FleetClass, FleetEvent, Flow, Rollout } from "./types";

export function ClassPage({ name }: { name: string }) {
  const path = `api/v1/classes/${encodeURIComponent(name)}`;
  const one = useAsked<FleetClass>(path, 2000);
  const flows = useAsked<{ flows: Flow[] }>(`${path}/flows`, 3000);
  const rollouts = useAsked<{ rollouts: Rollout[] }>(`${path}/rollouts`, 1000);
  const events = useAsked<{ events: FleetEvent[] }>(`api/v1/events?limit=20&class=${encodeURIComponent(name)}`, 5000);
  const again = () => [one, flows, rollouts].forEach((asked: Asked<unknown>) => asked.again());
  const found = one.value;
  const versions = new Map((flows.value?.flows ?? []).map((flow) => [flow.flow_id, flow.version]));
  // The newest first, whatever order they come in.
  const known = [...(rollouts.value?.rollouts ?? [])].sort((a, b) => b.created_ms - a.created_ms);
  const newest = known[0];
  return (
    <main>
      <h2 className="title">{name}</h2>
      <Trouble text={one.error ?? flows.error ?? rollouts.error} />
      {found !== null && (
        <div className="plots">
          <figure>
            <figcaption>{plural(found.agents, "agent")}</figcaption>
            <Shares label="Agents" parts={[
              { label: "online", value: found.agents_online, tone: "good", href: address(["fleet"], { class: name, state: "online" }) },
              { label: "missing", value: found.agents - found.agents_online, tone: "bad", href: address(["fleet"], { class: name, state: "missing" }) },
            ]} />
            {found.flow_id === null ? <p className="empty">It wants no flow yet.</p> : (
              <Shares label={`Flow version ${found.flow_version ?? ""}`} parts={[
                { label: "run the wanted flow", value: found.agents_deployed, tone: "river", href: address(["fleet"], { class: name, flow_state: "deployed" }) },
                { label: "do not", value: found.agents - found.agents_deployed, tone: "calm", href: address(["fleet"], { class: name, flow_state: "pending" }) },
              ]} />
            )}
          </figure>
          {newest !== undefined && <RolloutCard key={newest.id} rollout={newest} at_ms={rollouts.at_ms} versions={versions} again={again} />}
        </div>
      )}
      <Flows class_name={name} asked={flows} agents={found?.agents ?? 0} again={again} busy={newest !== undefined && (newest.state === "running" || newest.state === "paused" || newest.state === "halted")} />
      <Publish class_name={name} agents={found?.agents ?? 0} again={again} />
      <EventsTable asked={events} empty="Nothing is known to have happened to its agents." />
    </main>
  );
}

interface FlowsProps {
  class_name: string;
  asked: Asked<{ flows: Flow[] }>;
  agents: number;
  again: () => void;
  /** A roll-out is under way. */
  busy: boolean;
}

function Flows({ class_name, asked, agents, again, busy }: FlowsProps) {
  const [compared, setCompared] = useState<Flow | null>(null);
  const acting = useActing(again);
  const flows = asked.value?.flows ?? [];
  const isHeld = busy || acting.busy;
  const current = flows.find((flow) => flow.current);
  const publish = (flow: Flow) => {
    if (window.confirm(toAll(`Version ${flow.version}`, agents))) {
      void acting.act(() => send("POST", `api/v1/flows/${flow.flow_id}/publish`));
    }
  };
  const rollOut = (flow: Flow) => void acting.act(() => send("POST", `api/v1/classes/${encodeURIComponent(class_name)}/rollouts`, { flow_id: flow.flow_id }));
  return (
    <>
      <Trouble text={acting.trouble} />
      <Section id="flows" title="Flow versions" empty="No flow was published to this class yet." size={sizeOf(asked, (value) => value.flows.length)}>
        <thead><tr><th scope="col">Version</th><th scope="col">State</th><th scope="col">Published</th><th scope="col">Written as</th><th scope="col" className="number">Size</th><th scope="col">What to do</th></tr></thead>
        <tbody>
          {flows.map((flow) => (
            <tr key={flow.flow_id} data-id={flow.flow_id}>
              <th scope="row">{flow.version}<Sub>{flow.flow_id}</Sub></th>
              <td>{flow.current ? <Badge kind="good">wanted</Badge> : "–"}</td>
              <td><Ago at_ms={flow.created_ms} /></td>
              <td><a href={`api/v1/flows/${flow.flow_id}`} download={`${class_name}-${flow.version}.${flow.shape}`}>{flow.shape}</a></td>
              <td className="number">{bytes(flow.bytes)}</td>
              <td className="actions">
                {!flow.current && <button type="button" disabled={isHeld} onClick={() => publish(flow)}>Publish again</button>}
                {!flow.current && <button type="button" disabled={isHeld} onClick={() => rollOut(flow)}>Roll out</button>}
                {!flow.current && current !== undefined && <button type="button" aria-expanded={compared?.flow_id === flow.flow_id} onClick={() => setCompared(compared?.flow_id === flow.flow_id ? null : flow)}>Compare</button>}
              </td>
            </tr>
          ))}
        </tbody>
      </Section>
      {compared !== null && current !== undefined && <Differences flow={compared} against={current} />}
    </>
  );
}

function Differences({ flow, against }: { flow: Flow; against: Flow }) {
  const asked = useAsked<{ differences: Difference[] }>(`api/v1/flows/${flow.flow_id}/diff?against=${against.flow_id}`, 60_000);
  const differences = asked.value?.differences ?? [];
  return (
    <>
      <Trouble text={asked.error} />
      <Section id="differences" title={`From version ${against.version} to ${flow.version}`} empty="Nothing is different." size={sizeOf(asked, (value) => value.differences.length)}>
        <thead><tr><th scope="col">Where</th><th scope="col">Change</th><th scope="col">From</th><th scope="col">To</th></tr></thead>
        <tbody>
          {differences.map((one) => (
            <tr key={one.place}>
              <th scope="row">{one.place}</th>
              <td>{one.change}</td>
              <td><code>{shown(one.from)}</code></td>
              <td><code>{shown(one.to)}</code></td>
            </tr>
          ))}
        </tbody>
      </Section>
    </>
  );
}

function shown(value: unknown): string {
  return value === null || value === undefined ? "–" : typeof value === "string" ? value : JSON.stringify(value);
}
