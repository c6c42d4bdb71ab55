// What lives in the process, a table each: agents, topics, statements, jobs.

import type { ReactNode } from "react";

import type { Busiest, Statement, Topic } from "./api";
import type { Agent } from "./fleet/types";
import { bytes, count, rate } from "./format";
import { JobProgress, StateBadge } from "./imports/jobs";
import type { Job } from "./imports/types";
import { Ago, Badge, FLOW_TONES, Section, Sub } from "./parts";
import { current, jobRecords, statementIn, statementOut, topicBytes, topicRecords } from "./rates";
import type { Rates } from "./rates";
import { address } from "./route";
import { TopicName } from "./streams/topics";

/** The first few agents of `all`. */
export function AgentsTable({ agents, all, now_ms }: { agents: Agent[]; all: number; now_ms: number }) {
  const note = all > agents.length ? <a href="#/fleet">all {count(all)}</a> : all;
  return (
    <Section id="agents" title="Agents" empty="No agent has called in yet: start one with `thalweg agent`." size={agents.length} note={note}>
      <thead>
        <tr><th scope="col">Agent</th><th scope="col">Class</th><th scope="col">State</th><th scope="col">Last seen</th><th scope="col">Flow</th><th scope="col" className="number">Heartbeats</th></tr>
      </thead>
      <tbody>
        {agents.map((agent) => (
          <tr key={agent.id} data-id={agent.id}>
            <td><a href={address(["agents", agent.id])}>{agent.id}</a><Sub>{agent.hostname}</Sub></td>
            <td>{agent.class === null ? <i>parked</i> : <a href={address(["classes", agent.class])}>{agent.class}</a>}</td>
            <td><Badge kind={agent.state === "online" ? "good" : "bad"}>{agent.state}</Badge></td>
            <td><Ago at_ms={agent.last_seen_ms} now_ms={now_ms} /></td>
            <td><Badge kind={FLOW_TONES[agent.flow_state]}>{agent.flow_state}</Badge><Sub>{agent.flow_id}</Sub></td>
            <td className="number">{count(agent.heartbeats_total)}</td>
          </tr>
        ))}
      </tbody>
    </Section>
  );
}

/** How many there are, where all of them are found, and that only the busiest are shown. */
function ofAll({ shown, count: all }: Busiest<unknown>, href: string): ReactNode {
  return shown.length === all ? <a href={href}>{count(all)}</a> : <>the {count(shown.length)} busiest of <a href={href}>{count(all)}</a></>;
}

export function TopicsTable({ topics, rates }: { topics: Busiest<Topic>; rates: Rates }) {
  return (
    <Section id="topics" title="Topics" empty="No topic yet; the first producer makes one, or `thalweg topics create`." size={topics.shown.length} note={ofAll(topics, "#/topics")}>
      <thead>
        <tr><th scope="col">Topic</th><th scope="col" className="number">Partitions</th><th scope="col" className="number">Records/s</th><th scope="col" className="number">Bytes/s</th><th scope="col" className="number">Records</th><th scope="col" className="number">Stored</th></tr>
      </thead>
      <tbody>
        {topics.shown.map((topic) => (
          <tr key={topic.name} data-id={topic.name}>
            <td><TopicName of={topic} /></td>
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
    <Section id="statements" title="Statements" empty="No statement runs; add one with `thalweg statements add`." size={statements.shown.length} note={ofAll(statements, "#/statements")}>
      <thead>
        <tr><th scope="col">Statement</th><th scope="col">State</th><th scope="col" className="number">In/s</th><th scope="col" className="number">Out/s</th><th scope="col" className="number">In</th><th scope="col" className="number">Out</th><th scope="col" className="number">Late</th><th scope="col" className="number">Errors</th></tr>
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
        <tr><th scope="col">Job</th><th scope="col">Tenant</th><th scope="col">State</th><th scope="col">Progress</th><th scope="col" className="number">Records/s</th><th scope="col" className="number">Done</th><th scope="col" className="number">Rejected</th></tr>
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
