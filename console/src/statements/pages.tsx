// The statements' pages: all of them with an editor, and one with its books, rows and editor.

import { useState } from "react";

import { reason, send, useAsked } from "../ask";
import type { Statement } from "../api";
import { bytes, count } from "../format";
import { Badge, Section, Sub, Trouble } from "../parts";
import type { Tone } from "../parts";
import { address, go } from "../route";
import { Editor } from "./editor";
import { LiveRows } from "./rows";

export function StatementsPage() {
  const asked = useAsked<{ statements: Statement[] }>("api/v1/statements", 2000);
  const statements = asked.value?.statements ?? [];
  return (
    <main>
      <Trouble text={asked.error} />
      <Section id="all-statements" title="Statements" empty="No statement runs yet: add one below." size={statements.length}>
        <thead>
          <tr><th>Statement</th><th>State</th><th className="number">In</th><th className="number">Filtered</th><th className="number">Out</th><th className="number">Late</th><th className="number">Errors</th><th className="number">p99</th><th className="number">CPU</th></tr>
        </thead>
        <tbody>
          {statements.map((one) => (
            <tr key={one.id} data-id={one.id}>
              <th scope="row"><a href={address(["statements", one.id])}>{one.name ?? one.id}</a><Sub><code>{one.text}</code></Sub></th>
              <td><State of={one} /><Sub>{one.error}</Sub></td>
              <td className="number">{count(one.received_total)}</td>
              <td className="number">{count(one.filtered_total)}</td>
              <td className="number">{count(one.emitted_total)}</td>
              <td className="number">{count(one.late_total)}</td>
              <td className="number">{count(one.errored_total)}</td>
              <td className="number">{millis(one.latency_p99_us)}</td>
              <td className="number">{percent(one.cpu_share)}</td>
            </tr>
          ))}
        </tbody>
      </Section>
      <Editor statement={null} again={asked.again} />
    </main>
  );
}

export function StatementPage({ id }: { id: string }) {
  const path = `api/v1/statements/${encodeURIComponent(id)}`;
  const asked = useAsked<Statement>(path, 1000);
  const [trouble, setTrouble] = useState<string | null>(null);
  const statement = asked.value;
  if (statement === null) {
    return <main><Trouble text={asked.error} /><p><a href="#/statements">All statements</a></p></main>;
  }
  const act = async (what: () => Promise<unknown>) => {
    try {
      await what();
      setTrouble(null);
    } catch (error) {
      setTrouble(reason(error));
    }
    asked.again();
  };
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
        <button type="button" onClick={() => void act(() => send("POST", `${path}/${isPaused ? "resume" : "pause"}`))}>{isPaused ? "Resume" : "Pause"}</button>
        <button type="button" className="grave" onClick={() => void act(remove)}>Remove</button>
      </div>
      <Books of={statement} />
      <LiveRows key={statement.id} id={statement.id} />
      <Editor key={statement.generation} statement={statement} again={asked.again} />
    </main>
  );
}

/** What became of the events: the parts add up to what came. */
function Books({ of }: { of: Statement }) {
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
    <section id="books" aria-labelledby="books-title">
      <h2 id="books-title">Books</h2>
      <dl>{books.map(([name, value]) => <div key={name}><dt>{name}</dt><dd>{value}</dd></div>)}</dl>
    </section>
  );
}

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
