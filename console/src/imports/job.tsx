// One job: how far it is, what it did, what was wrong with its records, and steering it.

import type { ChangeEvent, ReactNode } from "react";

import { send, useActing, useAsked } from "../ask";
import { bytes, count } from "../format";
import { useRate } from "../history";
import { Ago, Badge, Section, sizeOf, Trouble } from "../parts";
import type { Tone } from "../parts";
import { RatePlot } from "../plot";
import { address, go } from "../route";
import { JobProgress, StateBadge } from "./jobs";
import type { Job, JournalEntry, JournalPage } from "./types";

export function JobPage({ id, query }: { id: string; query: URLSearchParams }) {
  const path = `api/v1/imports/${encodeURIComponent(id)}`;
  const asked = useAsked<Job>(path, 1000);
  const { act, busy, trouble } = useActing(asked.again);
  const job = asked.value;
  const seen = job === null ? null : job.records_done + job.records_rejected;
  const rates = useRate(asked.at_ms, id, seen);
  if (job === null) {
    return <main><Trouble text={asked.error} />{asked.error === null && <p className="empty">Reading…</p>}<p><a href="#/imports">All imports</a></p></main>;
  }
  const retry = (repaired?: File) => act(async () => {
    const begun = await send<Job>("POST", `${path}/retry`, repaired);
    go(address(["imports", begun.id]));
  });
  return (
    <main>
      <p><a href="#/imports">All imports</a></p>
      <h2 className="title">{job.name} <StateBadge of={job.state} /></h2>
      <Trouble text={trouble ?? asked.error ?? job.error} />
      <Steering of={job} busy={busy} act={(method, step) => void act(() => send(method, `${path}${step}`))} />
      <div className="plots">
        <Summary of={job} />
        <figure>
          <figcaption>Records</figcaption>
          <RatePlot rates={rates} unit="records/s" lines={[{ key: id, label: "records/s" }]} />
        </figure>
      </div>
      {job.records_rejected > 0 && <Rejects of={job} busy={busy} path={path} retry={(file) => void retry(file)} />}
      <Journal of={job} path={path} after={query.get("after") ?? ""} />
    </main>
  );
}

function Steering({ of, busy, act }: { of: Job; busy: boolean; act: (method: string, step: string) => void }) {
  const isRunning = of.state === "running";
  if (hasEnded(of)) {
    return null;
  }
  const cancel = () => {
    if (window.confirm(`${of.name} is cancelled for good; what it has imported stays.`)) {
      act("DELETE", "");
    }
  };
  return (
    <div className="actions">
      {isRunning && <button type="button" disabled={busy} onClick={() => act("POST", "/pause")}>Pause</button>}
      {of.state === "paused" && <button type="button" disabled={busy} onClick={() => act("POST", "/resume")}>Resume</button>}
      <button type="button" className="grave" disabled={busy} onClick={cancel}>Cancel</button>
    </div>
  );
}

/** The counts, all of committed rows. */
function Summary({ of }: { of: Job }) {
  const seen = of.records_done + of.records_rejected;
  const whole = hasEnded(of) ? count(of.records_total) : `about ${count(of.records_total)}`;
  const books: [string, ReactNode][] = [
    ["Through", `${count(seen)} of ${whole} records`],
    ["Created", count(of.records_created)],
    ["Updated", count(of.records_updated)],
    ["Skipped", count(of.records_skipped)],
    ["Rejected", count(of.records_rejected)],
    ["File", <>{bytes(of.bytes_done)} of {bytes(of.bytes_total)}, {of.format}</>],
    ["From", of.path ?? of.url ?? (of.retry_of === null ? "an upload" : <a href={address(["imports", of.retry_of])}>the rejects of another job</a>)],
    ["Tenant", <a href={address(["imports"], { tenant: of.tenant })}>{of.tenant}</a>],
    ["Topic", of.topic ?? "none"],
    ["Table", of.sink === "topic" ? "none" : "records"],
    ["Class", of.class],
    ["Slices", count(of.slices_done)],
    ["Profile", <code>{JSON.stringify(of.profile)}</code>],
    ["Begun", <Ago at_ms={of.created_ms} />],
    ["Last got on", <Ago at_ms={of.updated_ms} />],
  ];
  return (
    <section id="summary" aria-labelledby="summary-title">
      <h2 id="summary-title">Summary</h2>
      <p><JobProgress of={of} /></p>
      <dl>{books.map(([name, value]) => <div key={name}><dt>{name}</dt><dd>{value}</dd></div>)}</dl>
    </section>
  );
}

/** The rejected records: their file, and the job that tries them again. */
function Rejects({ of, busy, path, retry }: { of: Job; busy: boolean; path: string; retry: (repaired?: File) => void }) {
  const leftOut = of.rejects_left_out ?? 0;
  const open = (event: ChangeEvent<HTMLInputElement>) => {
    const file = event.currentTarget.files?.[0];
    if (file !== undefined) {
      retry(file);
    }
  };
  return (
    <section id="rejects" aria-labelledby="rejects-title">
      <h2 id="rejects-title">Rejected records <small>{count(of.records_rejected)}</small></h2>
      <div className="actions">
        <a className="button" href={`${path}/rejects`} download>Reject file</a>
        <button type="button" disabled={busy || !hasEnded(of)} onClick={() => retry()}>Retry them as they are</button>
        {hasEnded(of) && <label>Retry a repaired file <input type="file" onChange={open} /></label>}
      </div>
      {leftOut > 0 && <p>{count(leftOut)} of them are larger than 128 KiB and not in the file; the journal has their offsets.</p>}
    </section>
  );
}

function Journal({ of, path, after }: { of: Job; path: string; after: string }) {
  const asked = useAsked<JournalPage>(`${path}/journal?limit=${ENTRIES_SHOWN}&after=${encodeURIComponent(after === "" ? "0" : after)}`, 3000);
  const entries = asked.value?.entries ?? [];
  const next = asked.value?.next ?? null;
  const note = `${entries.length}${next === null ? "" : ", and more"}${after === "" ? "" : ` after record ${after}`}`;
  return (
    <>
      <Trouble text={asked.error} />
      <Section id="journal" title="Journal" empty="Nothing was wrong with any record." size={sizeOf(asked, (value) => value.entries.length)} note={note}>
        <thead>
          <tr><th scope="col" className="number">Record</th><th scope="col" className="number">At byte</th><th scope="col">What</th><th scope="col">Why</th></tr>
        </thead>
        <tbody>
          {entries.map((entry) => (
            <tr key={`${entry.ordinal} ${entry.kind}`}>
              <th scope="row" className="number">{count(entry.ordinal)}</th>
              <td className="number">{count(entry.offset)}</td>
              <td><Badge kind={KINDS[entry.kind]}>{entry.kind}</Badge></td>
              <td>{entry.reason}</td>
            </tr>
          ))}
        </tbody>
      </Section>
      <nav className="pager" aria-label="Pages of the journal">
        {after !== "" && <a href={address(["imports", of.id])}>First page</a>}
        {next !== null && <a href={address(["imports", of.id], { after: String(next) })}>Next page</a>}
      </nav>
    </>
  );
}

function hasEnded(job: Job): boolean {
  return !["uploading", "running", "paused"].includes(job.state);
}

const KINDS: Record<JournalEntry["kind"], Tone> = { rejected: "bad", repaired: "calm", skipped: "calm" };
const ENTRIES_SHOWN = 100;
