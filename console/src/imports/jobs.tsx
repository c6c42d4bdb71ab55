// The imports' first page: who gets how much of the sink, now and lately, the jobs, and sending a file.

import { useAsked } from "../ask";
import type { Asked } from "../ask";
import { bytes, count, rate } from "../format";
import { shares, useRates } from "../history";
import { useSight } from "../me";
import { Ago, Badge, Section, Sub, sizeOf, Trouble } from "../parts";
import type { Tone } from "../parts";
import { RatePlot } from "../plot";
import { current } from "../rates";
import { address } from "../route";
import type { Job, JobState, TenantsPage, TenantUse } from "./types";
import { Upload } from "./upload";

export function ImportsPage({ query }: { query: URLSearchParams }) {
  const sight = useSight();
  if (sight === null) {
    return <main />;
  }
  return <Imports tenant={query.get("tenant") ?? sight.tenant ?? ""} own={sight.tenant} />;
}

/** The imports of a tenant or, where none is named, of all; `own` is the only tenant that the caller sees. */
function Imports({ tenant, own }: { tenant: string; own: string | null }) {
  const asked = new URLSearchParams({ limit: String(JOBS_SHOWN), ...(tenant !== "" && { tenant }) });
  const jobs = useAsked<{ jobs: Job[] }>(`api/v1/imports?${asked.toString()}`, 1000);
  return (
    <main>
      <Trouble text={jobs.error} />
      {own === null && <Sharing />}
      <Jobs asked={jobs} tenant={tenant} own={own} />
      <Upload again={jobs.again} tenant={tenant} />
    </main>
  );
}

/** How tenants share the sink, for who sees all of them. */
function Sharing() {
  const tenants = useAsked<TenantsPage<TenantUse>>("api/v1/imports/tenants?limit=1000", 1000);
  return (
    <>
      <Trouble text={tenants.error} />
      <TenantShares at_ms={tenants.at_ms} tenants={tenants.value?.tenants ?? []} />
    </>
  );
}

/** Each tenant's part of the records that are imported, as a plot, and beside what its weight asks for. */
function TenantShares({ at_ms, tenants }: { at_ms: number; tenants: TenantUse[] }) {
  const totals = Object.fromEntries(tenants.map((one) => [one.tenant, one.records_done + one.records_rejected]));
  const rates = useRates(at_ms, at_ms === 0 ? null : totals);
  const parts = shares(rates);
  const busy = tenants.filter((one) => one.jobs_active > 0 || (rates.series.get(one.tenant) ?? []).some((point) => point !== null && point > 0));
  const shown = busy.sort((a, b) => b.records_done - a.records_done).slice(0, LINES_MAX);
  const weights = shown.reduce((sum, one) => sum + (one.jobs_active > 0 ? one.weight : 0), 0);
  const lines = shown.map((one) => ({ key: one.tenant, label: one.tenant }));
  if (shown.length === 0) {
    return null;
  }
  return (
    <>
      <div className="plots">
        <figure id="shares">
          <figcaption>Each tenant's share of the records</figcaption>
          <RatePlot rates={parts} unit="%" lines={lines} />
        </figure>
        <figure id="rates">
          <figcaption>Records of each tenant</figcaption>
          <RatePlot rates={rates} unit="records/s" lines={lines} />
        </figure>
      </div>
      <Section id="sharing" title="Sharing now" empty="" size={shown.length}>
        <thead>
          <tr><th scope="col">Tenant</th><th scope="col" className="number">Weight</th><th scope="col">Share</th><th scope="col" className="number">By weight</th><th scope="col" className="number">Records/s</th><th scope="col" className="number">Jobs</th></tr>
        </thead>
        <tbody>
          {shown.map((one) => (
            <tr key={one.tenant} data-id={one.tenant}>
              <th scope="row"><a href={address(["imports"], { tenant: one.tenant })}>{one.tenant}</a></th>
              <td className="number">{count(one.weight)}</td>
              <td><SharePart percent={current(parts, one.tenant)} /></td>
              <td className="number">{one.jobs_active === 0 || weights === 0 ? "–" : `${Math.round((one.weight / weights) * 100)} %`}</td>
              <td className="number">{rate(current(rates, one.tenant))}</td>
              <td className="number">{count(one.jobs_active)}</td>
            </tr>
          ))}
        </tbody>
      </Section>
    </>
  );
}

function SharePart({ percent }: { percent: number | null }) {
  if (percent === null) {
    return <>–</>;
  }
  return <><progress value={percent} max={100} aria-label={`${Math.round(percent)} %`} /> {Math.round(percent)} %</>;
}

function Jobs({ asked, tenant, own }: { asked: Asked<{ jobs: Job[] }>; tenant: string; own: string | null }) {
  const { at_ms } = asked;
  const jobs = asked.value?.jobs ?? [];
  const rates = useRates(at_ms, at_ms === 0 ? null : Object.fromEntries(jobs.map((job) => [job.id, job.records_done + job.records_rejected])));
  const whose = tenant === "" ? "" : ` of ${tenant}`;
  const told = jobs.length < JOBS_SHOWN ? `${jobs.length}${whose}` : `the ${JOBS_SHOWN} newest${whose}`;
  const note = tenant === "" || own !== null ? told : <>{told}, <a href={address(["imports"])}>all tenants</a></>;
  return (
    <Section id="jobs" title="Jobs" empty={`No import${whose} yet: send a file below.`} size={sizeOf(asked, (value) => value.jobs.length)} note={note}>
      <thead>
        <tr><th scope="col">Job</th><th scope="col">Tenant</th><th scope="col">State</th><th scope="col">Progress</th><th scope="col" className="number">Records/s</th><th scope="col" className="number">Done</th><th scope="col" className="number">Rejected</th><th scope="col">Begun</th></tr>
      </thead>
      <tbody>
        {jobs.map((job) => (
          <tr key={job.id} data-id={job.id}>
            <th scope="row"><a href={address(["imports", job.id])}>{job.name}</a><Sub>{job.topic}</Sub></th>
            <td><a href={address(["imports"], { tenant: job.tenant })}>{job.tenant}</a></td>
            <td><StateBadge of={job.state} /><Sub>{job.error}</Sub></td>
            <td><JobProgress of={job} /></td>
            <td className="number">{job.state === "running" ? rate(current(rates, job.id)) : "–"}</td>
            <td className="number">{count(job.records_done)}</td>
            <td className="number">{count(job.records_rejected)}</td>
            <td><Ago at_ms={job.created_ms} /></td>
          </tr>
        ))}
      </tbody>
    </Section>
  );
}

/** How far into its file a job is; while the file comes in, how much has come. */
export function JobProgress({ of }: { of: Job }) {
  if (of.state === "uploading") {
    return <>{bytes(of.bytes_total)} so far</>;
  }
  return <progress value={of.bytes_done} max={Math.max(1, of.bytes_total)} aria-label={`${bytes(of.bytes_done)} of ${bytes(of.bytes_total)}`} />;
}

export function StateBadge({ of }: { of: JobState }) {
  return <Badge kind={TONES[of]}>{of.replaceAll("_", " ")}</Badge>;
}

const TONES: Record<JobState, Tone> = {
  uploading: "calm",
  running: "good",
  paused: "calm",
  completed: "good",
  completed_with_rejects: "bad",
  failed: "bad",
  cancelled: "calm",
};
const JOBS_SHOWN = 200;
const LINES_MAX = 8;
