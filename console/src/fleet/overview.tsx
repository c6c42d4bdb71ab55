// The fleet as a whole: how it is, its classes, and any of its agents by filters that the server
// applies, a page at a time.

import { useAsked } from "../ask";
import type { Asked } from "../ask";
import { count, plural } from "../format";
import { useRate } from "../history";
import { Ago, Badge, Choice, firstOf, FLOW_TONES, Section, Shares, Sub, sizeOf, Trouble } from "../parts";
import { RatePlot } from "../plot";
import { address, go } from "../route";
import type { Agent, AgentsPage, FleetClass, FleetTotals } from "./types";

const BEATS = "heartbeats";

export function Overview({ query }: { query: URLSearchParams }) {
  const totals = useAsked<FleetTotals>("api/v1/fleet", 2000);
  const classes = useAsked<{ classes: FleetClass[] }>("api/v1/classes", 4000);
  const beats = useRate(totals.at_ms, BEATS, totals.value?.heartbeats_total ?? null);
  const fleet = totals.value;
  return (
    <main>
      <Trouble text={totals.error ?? classes.error} />
      {fleet !== null && (
        <div className="plots">
          <figure>
            <figcaption>{plural(fleet.agents, "agent")} in {plural(fleet.classes, "class", "classes")}</figcaption>
            <Shares label="Agents" parts={[
              { label: "online", value: fleet.online, tone: "good", href: address(["fleet"], { state: "online" }) },
              { label: "missing", value: fleet.missing, tone: "bad", href: address(["fleet"], { state: "missing" }) },
            ]} />
            <Shares label="Flows" parts={[
              { label: "deployed", value: fleet.flows_deployed, tone: "river", href: address(["fleet"], { flow_state: "deployed" }) },
              { label: "pending", value: fleet.flows_pending, tone: "calm", href: address(["fleet"], { flow_state: "pending" }) },
              { label: "failed", value: fleet.flows_failed, tone: "bad", href: address(["fleet"], { flow_state: "failed" }) },
              { label: "without a flow", value: fleet.agents - fleet.flows_deployed - fleet.flows_pending - fleet.flows_failed, tone: "good", href: address(["fleet"], { flow_state: "none" }) },
            ]} />
            {fleet.parked > 0 && <p className="sub"><a href={address(["fleet"], { parked: "true" })}>{count(fleet.parked)} without a class</a></p>}
          </figure>
          <figure>
            <figcaption>Heartbeats</figcaption>
            <RatePlot rates={beats} unit="heartbeats/s" lines={[{ key: BEATS, label: "heartbeats/s" }]} />
          </figure>
        </div>
      )}
      <Classes asked={classes} />
      <Agents query={query} classes={classes.value?.classes ?? []} />
    </main>
  );
}

function Classes({ asked }: { asked: Asked<{ classes: FleetClass[] }> }) {
  const classes = asked.value?.classes ?? [];
  const { shown, note } = firstOf([...classes].sort((a, b) => b.agents - a.agents), CLASSES_SHOWN, (most) => `the ${most} largest`);
  return (
    <Section id="classes" title="Classes" empty="No class yet; it appears with its first agent or flow." size={sizeOf(asked, (value) => value.classes.length)} note={note}>
      <thead>
        <tr><th scope="col">Class</th><th scope="col" className="number">Agents</th><th scope="col">Online</th><th scope="col">Run its flow</th><th scope="col">Flow</th></tr>
      </thead>
      <tbody>
        {shown.map((one) => (
          <tr key={one.name}>
            <th scope="row"><a href={address(["classes", one.name])}>{one.name}</a></th>
            <td className="number">{count(one.agents)}</td>
            <td><Part of={one.agents} value={one.agents_online} /></td>
            <td>{one.flow_id === null ? "–" : <Part of={one.agents} value={one.agents_deployed} />}</td>
            <td>{one.flow_version === null ? "none" : `version ${one.flow_version}`}</td>
          </tr>
        ))}
      </tbody>
    </Section>
  );
}

function Part({ value, of }: { value: number; of: number }) {
  return <><progress value={value} max={Math.max(1, of)} aria-label={`${value} of ${of}`} /> {count(value)}</>;
}

/** The agents that the address asks for. */
function Agents({ query, classes }: { query: URLSearchParams; classes: FleetClass[] }) {
  const filters = Object.fromEntries(FILTERS.map((name) => [name, query.get(name) ?? ""]));
  const after = query.get("after") ?? "";
  const asked = new URLSearchParams({ limit: String(PAGE) });
  for (const [name, value] of Object.entries({ ...filters, after })) {
    if (value.trim() !== "") {
      asked.set(name, value.trim());
    }
  }
  const page = useAsked<AgentsPage>(`api/v1/agents?${asked.toString()}`, 3000);
  // A filter begins at the first page again.
  const set = (name: string, value: string, replaces = false) => go(address(["fleet"], { ...filters, [name]: value }), replaces);
  const agents = page.value?.agents ?? [];
  const next = page.value?.next ?? null;
  const names: [string, string][] = classes.slice(0, CLASSES_LISTED).map((one) => [one.name, one.name]);
  const chosen = filters["class"] ?? "";
  if (chosen !== "" && !names.some(([name]) => name === chosen)) {
    names.unshift([chosen, chosen]);
  }
  return (
    <section id="agents" aria-labelledby="agents-title">
      <h2 id="agents-title">Agents <small aria-live="polite">{told(page.value, after)}</small></h2>
      <form role="search" className="filters" onSubmit={(event) => event.preventDefault()}>
        <label>
          Identifier or host
          <input type="search" value={filters["search"]} placeholder="a part of it" onChange={(event) => set("search", event.currentTarget.value, true)} />
        </label>
        <Choice label="Class" value={chosen} onChange={(value) => set("class", value)} options={[["", "any"], ...names]} />
        <Choice label="State" value={filters["state"] ?? ""} onChange={(value) => set("state", value)} options={[["", "any"], ["online", "online"], ["missing", "missing"]]} />
        <Choice label="Flow" value={filters["flow_state"] ?? ""} onChange={(value) => set("flow_state", value)} options={[["", "any"], ["deployed", "deployed"], ["pending", "pending"], ["failed", "failed"], ["none", "none wanted"]]} />
        <Choice label="Class given" value={filters["parked"] ?? ""} onChange={(value) => set("parked", value)} options={[["", "any"], ["false", "with a class"], ["true", "without a class"]]} />
        {Object.values(filters).some((value) => value !== "") && <a href={address(["fleet"])}>All agents</a>}
      </form>
      <Trouble text={page.error} />
      {page.value !== null && agents.length === 0 && <p className="empty">{next === null ? (Object.values(filters).some((value) => value !== "") ? "No agent is like that." : "No agent has called in yet: start one with `thalweg agent`.") : "None so far; the next page looks further."}</p>}
      {agents.length > 0 && <div className="scroll"><AgentsTable agents={agents} /></div>}
      <nav className="pager" aria-label="Pages of agents">
        {after !== "" && <a href={address(["fleet"], filters)}>First page</a>}
        {next !== null && <a href={address(["fleet"], { ...filters, after: next })}>Next page</a>}
      </nav>
    </section>
  );
}

export function AgentsTable({ agents }: { agents: Agent[] }) {
  return (
    <table>
      <thead>
        <tr><th scope="col">Agent</th><th scope="col">Class</th><th scope="col">State</th><th scope="col">Last seen</th><th scope="col">Flow</th><th scope="col">Build</th><th scope="col" className="number">Heartbeats</th></tr>
      </thead>
      <tbody>
        {agents.map((agent) => (
          <tr key={agent.id} data-id={agent.id}>
            <th scope="row"><a href={address(["agents", agent.id])}>{agent.id}</a><Sub>{agent.hostname}</Sub></th>
            <td>{agent.class === null ? <i>parked</i> : <a href={address(["classes", agent.class])}>{agent.class}</a>}</td>
            <td><Badge kind={agent.state === "online" ? "good" : "bad"}>{agent.state}</Badge>{agent.duplicate_device !== null && <Sub>two devices</Sub>}</td>
            <td><Ago at_ms={agent.last_seen_ms} /></td>
            <td><Badge kind={FLOW_TONES[agent.flow_state]}>{agent.flow_state}</Badge></td>
            <td>{agent.agent_type ?? "–"} {agent.agent_version}</td>
            <td className="number">{count(agent.heartbeats_total)}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

function told(page: AgentsPage | null, after: string): string {
  if (page === null) {
    return "reading…";
  }
  const more = page.next === null ? "" : ", and more";
  return after === "" ? `${page.agents.length}${more}` : `${page.agents.length} after ${after}${more}`;
}

const FILTERS = ["search", "class", "state", "flow_state", "parked"];
const PAGE = 50;
const CLASSES_SHOWN = 20;
const CLASSES_LISTED = 500;
