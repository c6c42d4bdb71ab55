// What lives in the process, a table each: agents, topics, statements, jobs.

import type { Busiest, Statement, Topic } from "./api";
import type { Agent } from "./fleet/types";
import { age, bytes, count, rate } from "./format";
import { JobProgress, StateBadge } from "./imports/jobs";
import type { Job } from "./imports/types";
import { Badge, FLOW_TONES, Section, Sub } from "./parts";
import { current, jobRecords, statementIn, statementOut, topicBytes, topicRecords } from "./rates";
import type { Rates } from "./rates";
import { address } from "./route";

/** The first few agents of `all`. */
export function AgentsTable({ agents, all, now_ms }: { agents: Agent[]; all: number; now_ms: number }) {
  const note = all > agents.length ? <a href="#/fleet">all {count(all)}</a> : all;
  return (
    <Section id="agents" title="Agents" empty="No agent has called in yet." size={agents.length} note={note}>
      <thead>
        <tr><th>Agent</th><th>Class</th><th>State</th><th>Last seen</th><th>Flow</th><th className="number">Heartbeats</th></tr>
      </thead>
      <tbody>
        {agents.map((agent) => (
          <tr key={agent.id} data-id={agent.id}>
            <td><a href={address(["agents", agent.id])}>{agent.id}</a><Sub>{agent.hostname}</Sub></td>
            <td>{agent.class === null ? <i>parked</i> : <a href={address(["classes", agent.class])}>{agent.class}</a>}</td>
            <td><Badge kind={agent.state === "online" ? "good" : "bad"}>{agent.state}</Badge></td>
            <td>{age(now_ms - agent.last_seen_ms)} ago</td>
            <td><Badge kind={FLOW_TONES[agent.flow_state]}>{agent.flow_state}</Badge><Sub>{agent.flow_id}</Sub></td>
            <td className="number">{count(agent.heartbeats_total)}</td>
          </tr>
        ))}
      </tbody>
    </Section>
  );
}

/** How many there are, and that only the busiest are shown. */
function ofAll({ shown, count: all }: Busiest<unknown>): string {
  return shown.length === all ? count(all) : `the ${shown.length} busiest of ${count(all)}`;
}

export function TopicsTable({ topics, rates }: { topics: Busiest<Topic>; rates: Rates }) {
  return (
    <Section id="topics" title="Topics" empty="No topic yet; the first producer makes one." size={topics.shown.length} note={ofAll(topics)}>
      <thead>
        <tr><th>Topic</th><th className="number">Partitions</th><th className="number">Records/s</th><th className="number">Bytes/s</th><th className="number">Records</th><th className="number">Stored</th></tr>
      </thead>
      <tbody>
        {topics.shown.map((topic) => (
          <tr key={topic.name} data-id={topic.name}>
            <td>{topic.name}{topic.wire_name !== topic.name && <Sub>{topic.wire_name}</Sub>}</td>
            <td className="number">{topic.partitions}</td>
            <td className="number">{rate(current(rates, topicRecords(topic.name)))}</td>
            <td className="number">{bytes(current(rates, topicBytes(topic.name)))}</td>
            <td className="number">{count(topic.records_in_total)}</td>
            <td className="number">{bytes(topic.bytes_stored)}</td>
          </tr>
        ))}
      </tbody>
    </Section>
  );
}

export function StatementsTable({ statements, rates }: { statements: Busiest<Statement>; rates: Rates }) {
  return (
    <Section id="statements" title="Statements" empty="No statement runs; add one with `thalweg statements add`." size={statements.shown.length} note={ofAll(statements)}>
      <thead>
        <tr><th>Statement</th><th>State</th><th className="number">In/s</th><th className="number">Out/s</th><th className="number">In</th><th className="number">Out</th><th className="number">Late</th><th className="number">Errors</th></tr>
      </thead>
      <tbody>
        {statements.shown.map((statement) => (
          <tr key={statement.id} data-id={statement.id}>
            <td><a href={address(["statements", statement.id])}>{statement.name ?? statement.id}</a><Sub><code>{statement.text}</code></Sub></td>
            <td><Badge kind={statement.error === null ? "good" : "bad"}>{statement.status}</Badge><Sub>{statement.error}</Sub></td>
            <td className="number">{rate(current(rates, statementIn(statement.id)))}</td>
            <td className="number">{rate(current(rates, statementOut(statement.id)))}</td>
            <td className="number">{count(statement.received_total)}</td>
            <td className="number">{count(statement.emitted_total)}</td>
            <td className="number">{count(statement.late_total)}</td>
            <td className="number">{count(statement.errored_total)}</td>
          </tr>
        ))}
      </tbody>
    </Section>
  );
}

export function JobsTable({ jobs, rates }: { jobs: Job[]; rates: Rates }) {
  return (
    <Section id="jobs" title="Import jobs" empty="No import yet; load a file with `thalweg import`." size={jobs.length}>
      <thead>
        <tr><th>Job</th><th>Tenant</th><th>State</th><th>Progress</th><th className="number">Records/s</th><th className="number">Done</th><th className="number">Rejected</th></tr>
      </thead>
      <tbody>
        {jobs.map((job) => (
          <tr key={job.id} data-id={job.id}>
            <td><a href={address(["imports", job.id])}>{job.name}</a><Sub>{job.topic}</Sub></td>
            <td><a href={address(["imports"], { tenant: job.tenant })}>{job.tenant}</a></td>
            <td><StateBadge of={job.state} /><Sub>{job.error}</Sub></td>
            <td><JobProgress of={job} /></td>
            <td className="number">{rate(current(rates, jobRecords(job.id)))}</td>
            <td className="number">{count(job.records_done)}</td>
            <td className="number">{count(job.records_rejected)}</td>
          </tr>
        ))}
      </tbody>
    </Section>
  );
}
