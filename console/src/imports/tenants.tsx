// The tenants: what each has imported, its weight, which is how much of the sink it gets, and, where
// the server keeps them, its quotas and what it uses of them.

import type { FormEvent } from "react";

import { send, useActing, useAsked } from "../ask";
import type { Asked } from "../ask";
import { bytes, count, rate } from "../format";
import { Ago, Badge, Section, Sub, sizeOf, Trouble } from "../parts";
import { Home } from "./home";
import { address, go } from "../route";
import type { Quotas, Tenant, TenantsPage as Page, TenantUsage, TenantUse } from "./types";

export function TenantsPage({ query }: { query: URLSearchParams }) {
  const after = query.get("after") ?? "";
  const page = `limit=${SHOWN}&after=${encodeURIComponent(after)}`;
  const kept = useAsked<Page<Tenant>>(`api/v1/tenants?${page}`, 2000);
  const used = useAsked<Page<TenantUse>>(`api/v1/imports/tenants?${page}`, 2000);
  const { act, busy, trouble } = useActing(() => [kept, used].forEach((asked) => asked.again()));
  const set = (tenant: string, weight: number) => act(() => send("PUT", `api/v1/tenants/${encodeURIComponent(tenant)}`, { weight }));
  const tenants = merged(kept.value, used.value);
  const next = [kept.value?.next, used.value?.next].filter((name) => typeof name === "string").sort()[0] ?? null;
  const shown = tenants.filter((one) => next === null || one.tenant <= next);
  return (
    <main>
      <Trouble text={trouble ?? kept.error ?? used.error} />
      <Section id="tenants" title="Tenants" empty="No tenant yet: the first import makes one, or you below." size={shown.length > 0 ? shown.length : sizeOf<unknown>(kept.value === null ? kept : used, () => 0)} note={`${shown.length}${next === null ? "" : ", and more"}`}>
        <thead>
          <tr><th scope="col">Tenant</th><th scope="col">Weight</th><th scope="col" className="number">Imports</th><th scope="col" className="number">Now</th><th scope="col" className="number">Records</th><th scope="col" className="number">Rejected</th><th scope="col" className="number">Of files</th><th scope="col">Last</th></tr>
        </thead>
        <tbody>
          {shown.map((one) => (
            <tr key={one.tenant} data-id={one.tenant}>
              <th scope="row">{one.is_kept ? <a href={address(["tenants", one.tenant])}>{one.tenant}</a> : <>{one.tenant}<Sub>not kept: set a weight to keep it</Sub></>}</th>
              <td><Weight key={one.weight} tenant={one.tenant} weight={one.weight} set={(weight) => void set(one.tenant, weight)} /></td>
              <td className="number"><a href={address(["imports"], { tenant: one.tenant })}>{count(one.use?.jobs ?? 0)}</a></td>
              <td className="number">{count(one.use?.jobs_active ?? 0)}</td>
              <td className="number">{count(one.use?.records_done ?? 0)}</td>
              <td className="number">{count(one.use?.records_rejected ?? 0)}</td>
              <td className="number">{bytes(one.use?.bytes_done ?? 0)}</td>
              <td>{one.use === null ? "–" : <Ago at_ms={one.use.updated_ms} />}</td>
            </tr>
          ))}
        </tbody>
      </Section>
      <nav className="pager" aria-label="Pages of tenants">
        {after !== "" && <a href={address(["tenants"])}>First page</a>}
        {next !== null && <a href={address(["tenants"], { after: next })}>Next page</a>}
      </nav>
      <NewTenant set={set} busy={busy} />
    </main>
  );
}

/** One tenant: its quotas beside what it uses of them, its topics and what waits in them. */
export function TenantPage({ name }: { name: string }) {
  const path = `api/v1/tenants/${encodeURIComponent(name)}`;
  const asked = useAsked<Tenant>(path, 2000);
  const usage = useAsked<TenantUsage>(`${path}/usage`, 1000);
  const { act, trouble } = useActing(() => [asked, usage].forEach((one: Asked<unknown>) => one.again()));
  const change = (method: string, under: string, body: object) => act(() => send(method, `${path}${under}`, body));
  const set = (wanted: object) => change("PUT", "", wanted);
  const tenant = asked.value;
  return (
    <main>
      <p><a href="#/tenants">All tenants</a>, <a href={address(["imports"], { tenant: name })}>its imports</a></p>
      <h2 className="title">{name} {tenant?.class !== undefined && <Badge kind="calm">{tenant.class}</Badge>}</h2>
      <Trouble text={trouble ?? asked.error ?? usage.error} />
      {tenant?.quotas !== undefined && <QuotasTable key={JSON.stringify(tenant.quotas)} quotas={tenant.quotas} usage={usage.value} set={(quotas) => void set({ quotas })} />}
      {tenant?.collection !== undefined && <Home key={`${tenant.collection} ${tenant.switching_to} ${tenant.retention_ms}`} tenant={tenant} set={(wanted) => void set(wanted)} purge={() => void change("POST", "/purge", {})} />}
      {tenant?.members !== undefined && tenant.members.length > 0 && <p>Members: {tenant.members.join(", ")}</p>}
      {usage.value !== null && <Topics usage={usage.value} />}
    </main>
  );
}

function QuotasTable({ quotas, usage, set }: { quotas: Quotas; usage: TenantUsage | null; set: (quotas: Partial<Quotas>) => void }) {
  const now: Record<keyof Quotas, string> = {
    bytes_in_per_second: usage === null ? "–" : `${bytes(usage.rates.bytes_in_per_second)}/s`,
    bytes_out_per_second: usage === null ? "–" : `${bytes(usage.rates.bytes_out_per_second)}/s`,
    records_per_second: usage === null ? "–" : `${rate(usage.rates.records_per_second)}/s`,
    in_flight: usage === null ? "–" : count(usage.in_flight),
    stored_bytes: usage === null ? "–" : bytes(usage.stored_bytes),
  };
  const submit = (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    const form = new FormData(event.currentTarget);
    const wanted = QUOTAS.map(([key]) => {
      const text = String(form.get(key) ?? "").trim();
      return [key, text === "" ? null : Number(text)];
    });
    set(Object.fromEntries(wanted) as Partial<Quotas>);
  };
  return (
    <form onSubmit={submit}>
      <Section id="quotas" title="Quotas" empty="" size={QUOTAS.length} note={usage === null || usage.wait_ms === 0 ? "nothing is held back" : `held back for ${usage.wait_ms} ms`}>
        <thead><tr><th scope="col">What</th><th scope="col">Most</th><th scope="col" className="number">Now</th></tr></thead>
        <tbody>
          {QUOTAS.map(([key, label]) => (
            <tr key={key}>
              <th scope="row">{label}</th>
              <td><input name={key} type="number" min={1} defaultValue={quotas[key] ?? ""} placeholder="no bound" aria-label={label} /></td>
              <td className="number">{now[key]}</td>
            </tr>
          ))}
        </tbody>
      </Section>
      <div className="actions"><button type="submit" className="first">Set quotas</button></div>
    </form>
  );
}

function Topics({ usage }: { usage: TenantUsage }) {
  return (
    <>
      <Section id="tenant-topics" title="Topics" empty="It has no records in a topic." size={usage.topics.length}>
        <thead><tr><th scope="col">Topic</th><th scope="col">Collection</th><th scope="col" className="number">Records</th><th scope="col" className="number">Bytes</th><th scope="col">Oldest</th></tr></thead>
        <tbody>
          {usage.topics.map((one) => (
            <tr key={one.topic} data-id={one.topic}>
              <th scope="row">{one.topic}</th>
              <td>{one.is_shared ? "shared" : "its own"}</td>
              <td className="number">{count(one.records)}</td>
              <td className="number">{bytes(one.bytes)}</td>
              <td>{one.oldest_ms === null ? "–" : <Ago at_ms={one.oldest_ms} now_ms={usage.now_ms} />}</td>
            </tr>
          ))}
        </tbody>
      </Section>
      <Section id="tenant-backlog" title="Backlog" empty="No group is behind in its topics." size={usage.backlog.length}>
        <thead><tr><th scope="col">Group</th><th scope="col">Topic</th><th scope="col" className="number">Records</th><th scope="col">Oldest</th></tr></thead>
        <tbody>
          {usage.backlog.map((one) => (
            <tr key={`${one.group} ${one.topic}`}>
              <th scope="row">{one.group}</th>
              <td>{one.topic}</td>
              <td className="number">{count(one.records)}</td>
              <td>{one.oldest_ms === null ? "–" : <Ago at_ms={one.oldest_ms} now_ms={usage.now_ms} />}</td>
            </tr>
          ))}
        </tbody>
      </Section>
    </>
  );
}

function Weight({ tenant, weight, set }: { tenant: string; weight: number; set: (weight: number) => void }) {
  const submit = (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    set(Number(new FormData(event.currentTarget).get("weight")));
  };
  return (
    <form className="actions" onSubmit={submit}>
      <input name="weight" type="number" min={1} max={1000} required defaultValue={weight} aria-label={`Weight of ${tenant}`} />
      <button type="submit" aria-label={`Set the weight of ${tenant}`}>Set</button>
    </form>
  );
}

function NewTenant({ set, busy }: { set: (tenant: string, weight: number) => Promise<boolean>; busy: boolean }) {
  const submit = (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    const form = event.currentTarget;
    const given = new FormData(form);
    // What was refused stays there to be mended.
    void set(String(given.get("tenant")), Number(given.get("weight"))).then((isDone) => {
      if (isDone) {
        form.reset();
        go(address(["tenants"]));
      }
    });
  };
  return (
    <section id="new-tenant" aria-labelledby="new-tenant-title">
      <h2 id="new-tenant-title">Another tenant</h2>
      <form className="filters" onSubmit={submit}>
        <label>Name <input name="tenant" required /></label>
        <label>Its weight <input name="weight" type="number" min={1} max={1000} required defaultValue={1} /></label>
        <button type="submit" disabled={busy}>Add</button>
      </form>
    </section>
  );
}

interface Row {
  tenant: string;
  weight: number;
  /** Else it has imported something and nothing more. */
  is_kept: boolean;
  use: TenantUse | null;
}

/** Tenants by name: those that are kept, and those that have imported something. */
function merged(kept: Page<Tenant> | null, used: Page<TenantUse> | null): Row[] {
  const rows = new Map<string, Row>();
  for (const use of used?.tenants ?? []) {
    rows.set(use.tenant, { tenant: use.tenant, weight: use.weight, is_kept: false, use });
  }
  for (const one of kept?.tenants ?? []) {
    rows.set(one.tenant, { tenant: one.tenant, weight: one.weight, is_kept: true, use: rows.get(one.tenant)?.use ?? null });
  }
  return [...rows.values()].sort((a, b) => (a.tenant < b.tenant ? -1 : 1));
}

const QUOTAS: [keyof Quotas, string][] = [
  ["bytes_in_per_second", "Bytes in per second"],
  ["bytes_out_per_second", "Bytes out per second"],
  ["records_per_second", "Records per second"],
  ["in_flight", "Requests in flight"],
  ["stored_bytes", "Stored bytes"],
];
const SHOWN = 100;
