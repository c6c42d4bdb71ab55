// The first page: what flows along the line, live.

import { useEffect, useState } from "react";

import { readSnapshot } from "./api";
import type { Snapshot } from "./api";
import { pauseAfter, reason } from "./ask";
import { count, plural, rate } from "./format";
import { Trouble } from "./parts";
import { RatePlot } from "./plot";
import { advance, allRecords, allStatementsIn, current, emptyRates, heartbeats, mqttIn, statementIn, topicRecords } from "./rates";
import type { CounterKey, Rates } from "./rates";
import { AgentsTable, JobsTable, StatementsTable, TopicsTable } from "./tables";

interface View {
  snapshot: Snapshot | null;
  rates: Rates;
  error: string | null;
}

export function LinePage() {
  const view = useLiveView();
  if (view.snapshot === null) {
    return <main><p className="empty">{view.error ?? "Reading…"}</p></main>;
  }
  const { snapshot, rates } = view;
  const busiest = [...snapshot.topics.shown]
    .sort((a, b) => b.records_in_total - a.records_in_total)
    .slice(0, LINES_MAX);
  const statements = snapshot.statements.shown.slice(0, LINES_MAX);
  return (
    <main>
      <Trouble text={view.error} />
      {snapshot.withheld.map((why) => <p key={why} className="empty">A part is not shown: {why}</p>)}
      <Course snapshot={snapshot} rates={rates} />
      <div className="plots">
        <figure>
          <figcaption>Records into topics</figcaption>
          <RatePlot rates={rates} unit="records/s" lines={busiest.map((topic) => ({ key: topicRecords(topic.name), label: topic.name }))} />
        </figure>
        <figure>
          <figcaption>Events into statements</figcaption>
          <RatePlot rates={rates} unit="events/s" lines={statements.map((one) => ({ key: statementIn(one.id), label: one.name ?? one.id }))} />
        </figure>
      </div>
      {snapshot.fleet !== null && <AgentsTable agents={snapshot.agents} all={snapshot.fleet.agents} now_ms={snapshot.status.now_ms} />}
      <TopicsTable topics={snapshot.topics} rates={rates} />
      <StatementsTable statements={snapshot.statements} rates={rates} />
      <JobsTable jobs={snapshot.jobs} rates={rates} />
    </main>
  );
}

/** The line itself: where data enters, rests and is computed over, each with its rate. */
function Course({ snapshot, rates }: { snapshot: Snapshot; rates: Rates }) {
  const running = snapshot.jobs.filter((job) => job.state === "running").length;
  return (
    <nav className="course" aria-label="The line">
      {snapshot.fleet !== null && (
        <Station href="#/fleet" name="Agents" figure={`${count(snapshot.fleet.online)} online`} counter={heartbeats} unit="heartbeats/s" rates={rates} />
      )}
      {snapshot.status.mqtt !== null && (
        <Station href="#/mqtt" name="MQTT" figure={plural(snapshot.status.mqtt.clients_connected, "client")} counter={mqttIn} unit="messages/s" rates={rates} />
      )}
      <Station href="#/topics" name="Topics" figure={plural(snapshot.topics.count, "topic")} counter={allRecords} unit="records/s" rates={rates} />
      <Station href="#/statements" name="Statements" figure={plural(snapshot.statements.count, "statement")} counter={allStatementsIn} unit="events/s" rates={rates} />
      <Station href="#/imports" name="Imports" beside figure={`${running} running`} counter={null} unit="" rates={rates} />
    </nav>
  );
}

function Station(props: { beside?: boolean; href: string; name: string; figure: string; counter: CounterKey | null; unit: string; rates: Rates }) {
  return (
    <a className={props.beside === true ? "station beside" : "station"} href={props.href}>
      <b>{props.name}</b>
      <span>{props.figure}</span>
      {props.counter !== null && <span className="rate">{rate(current(props.rates, props.counter))} {props.unit}</span>}
    </a>
  );
}

/** Polls the API once a second while the page is visible, one request round at a time. */
function useLiveView(): View {
  const [view, setView] = useState<View>({ snapshot: null, rates: emptyRates, error: null });
  useEffect(() => {
    const abort = new AbortController();
    let timer = 0;
    const poll = async () => {
      const began = performance.now();
      if (!document.hidden) {
        try {
          const snapshot = await readSnapshot(abort.signal);
          setView((old) => ({ snapshot, rates: advance(old.rates, snapshot), error: null }));
        } catch (error) {
          if (abort.signal.aborted) {
            return;
          }
          setView((old) => ({ ...old, error: reason(error) }));
        }
      }
      timer = window.setTimeout(() => void poll(), pauseAfter(began, POLL_MS));
    };
    void poll();
    return () => {
      abort.abort();
      window.clearTimeout(timer);
    };
  }, []);
  return view;
}

const POLL_MS = 1000;
const LINES_MAX = 8;
