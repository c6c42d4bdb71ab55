// The statements' pages: all of them with an editor, and one with its books, rows and editor.

import { useState } from "react";

import { send, useActing, useAsked } from "../ask";
import type { Statement } from "../api";
import { bytes, count } from "../format";
import { Listing } from "../listing";
import type { Column } from "../listing";
import { Badge, Sub, sizeOf, Trouble } from "../parts";
import type { Tone } from "../parts";
import { address, go } from "../route";
import { Editor } from "./editor";
import { LiveRows } from "./rows";

export function StatementsPage({ query }: { query: URLSearchParams }) {
  const asked = useAsked<{ statements: Statement[] }>("api/v1/statements", 2000);
  return (
    <main>
      <Trouble text={asked.error} />
      <Listing
        id="all-statements"
        title="Statements"
        empty="No statement runs yet: add one below."
        size={sizeOf(asked, (value) => value.statements.length)}
        items={asked.value?.statements ?? []}
        columns={COLUMNS}
        key_of={(one) => one.id}
        texts={(one) => [one.id, one.name ?? "", one.text, one.status]}
        path={["statements"]}
        query={query}
      />
      <Editor statement={null} again={asked.again} />
    </main>
  );
}

export function StatementPage({ id }: { id: string }) {
  const path = `api/v1/statements/${encodeURIComponent(id)}`;
  const asked = useAsked<Statement>(path, 1000);
  const { act, busy, trouble } = useActing(asked.again);
  const [said, setSaid] = useState<string | null>(null);
  const statement = asked.value;
  if (statement === null) {
    return <main><Trouble text={asked.error} />{asked.error === null && <p className="empty">Reading…</p>}<p><a href="#/statements">All statements</a></p></main>;
  }
  const remove = async () => {
    if (!window.confirm(`${statement.name ?? statement.id} goes, with its windows and all that it has counted.`)) {
      return;
    }
    await send("DELETE", path);
    go(address(["statements"]));
  };
  const isPaused = statement.status === "paused";
  return (
    <main>
      <p><a href="#/statements">All statements</a></p>
      <h2 className="title">{statement.name ?? statement.id} <State of={statement} /></h2>
      <Trouble text={trouble ?? asked.error ?? statement.error} />
      <div className="actions">
        <button type="button" disabled={busy} onClick={() => void act(() => send("POST", `${path}/${isPaused ? "resume" : "pause"}`))}>{isPaused ? "Resume" : "Pause"}</button>
        <button type="button" className="grave" disabled={busy} onClick={() => void act(remove)}>Remove</button>
      </div>
      <Summary of={statement} />
      <LiveRows key={statement.id} id={statement.id} />
      {said !== null && <p className="said" role="status">{said}</p>}
      <Editor key={statement.generation} statement={statement} again={asked.again} replaced={setSaid} />
    </main>
  );
}

/** What became of the events: the parts add up to what came. */
function Summary({ of }: { of: Statement }) {
  const books: [string, string][] = [
    ["Received", count(of.received_total)],
    ["Emitted", `${count(of.emitted_total)} rows of ${count(of.emitted_from_total)} events`],
    ["Filtered", count(of.filtered_total)],
    ["Late", count(of.late_total)],
    ["Errors", count(of.errored_total)],
    ["Dropped", count(of.dropped_total)],
    ["In flight", count(of.in_flight)],
    ["Waiting", `${count(of.waiting_rows)} rows`],
    ["Lag", of.lag_records === null ? "–" : `${count(of.lag_records)} records`],
    ["Latency", `half within ${millis(of.latency_p50_us)}, 99 % within ${millis(of.latency_p99_us)}`],
    ["State", bytes(of.state_bytes)],
    ["CPU", percent(of.cpu_share)],
    ["From", `${of.source} (${of.format})`],
    ["To", of.sink ?? "–"],
  ];
  return (
    <section id="summary" aria-labelledby="summary-title">
      <h2 id="summary-title">Summary</h2>
      <dl>{books.map(([name, value]) => <div key={name}><dt>{name}</dt><dd>{value}</dd></div>)}</dl>
    </section>
  );
}

const COLUMNS: [Column<Statement>, ...Column<Statement>[]] = [
  { name: "name", title: "Statement", value: (one) => one.name ?? one.id, cell: (one) => <><a href={address(["statements", one.id])}>{one.name ?? one.id}</a><Sub><code>{one.text}</code></Sub></> },
  { name: "state", title: "State", value: (one) => one.status, cell: (one) => <><State of={one} /><Sub>{one.error}</Sub></> },
  { name: "in", title: "In", is_number: true, value: (one) => one.received_total },
  { name: "filtered", title: "Filtered", is_number: true, value: (one) => one.filtered_total },
  { name: "out", title: "Out", is_number: true, value: (one) => one.emitted_total },
  { name: "late", title: "Late", is_number: true, value: (one) => one.late_total },
  { name: "errors", title: "Errors", is_number: true, value: (one) => one.errored_total },
  { name: "p99", title: "p99", is_number: true, value: (one) => one.latency_p99_us, cell: (one) => millis(one.latency_p99_us) },
  { name: "cpu", title: "CPU", is_number: true, value: (one) => one.cpu_share, cell: (one) => percent(one.cpu_share) },
];

function State({ of }: { of: Statement }) {
  const tones: Record<string, Tone> = { running: "good", paused: "calm" };
  return <Badge kind={tones[of.status] ?? "bad"}>{of.status}</Badge>;
}

function millis(us: number | null): string {
  if (us === null) {
    return "–";
  }
  return us < 1000 ? `${us} µs` : `${(us / 1000).toFixed(us < 100_000 ? 1 : 0)} ms`;
}

function percent(share: number): string {
  return share === 0 ? "–" : `${(share * 100).toFixed(share < 0.1 ? 2 : 0)} %`;
}
