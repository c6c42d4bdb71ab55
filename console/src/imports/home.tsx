// Where a tenant's records are: in its own topics or in a collection that tenants share, for how long,
// and how all of them go.

import type { FormEvent } from "react";

import type { Tenant } from "./types";

export function Home({ tenant, set, purge }: { tenant: Tenant; set: (change: object) => void; purge: () => void }) {
  const submit = (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    const form = new FormData(event.currentTarget);
    const collection = form.get("home") === "own" ? null : String(form.get("collection"));
    const hours = String(form.get("hours") ?? "").trim();
    set({ collection, retention_ms: hours === "" ? null : Math.round(Number(hours) * HOUR_MS) });
  };
  const remove = () => {
    if (window.confirm(`All records of ${tenant.tenant} go out of all topics, with all that it has imported, for good.`)) {
      purge();
    }
  };
  const wanted = tenant.switching_to ?? tenant.collection ?? OWN;
  return (
    <section id="home" aria-labelledby="home-title">
      <h2 id="home-title">Records</h2>
      <p role="status">{said(tenant)}</p>
      <form className="filters" onSubmit={submit}>
        <label>Topics <select name="home" defaultValue={wanted === OWN ? OWN : SHARED}><option value={OWN}>its own</option><option value={SHARED}>shared</option></select></label>
        <label>Collection <input name="collection" pattern="[A-Z][A-Z0-9]{0,30}" required defaultValue={wanted === OWN ? "ALL" : wanted} title="A-Z and 0-9, a letter first" /></label>
        <label>Kept for hours <input name="hours" type="number" min={0.001} step="any" placeholder="as its topics say" defaultValue={tenant.retention_ms == null ? "" : tenant.retention_ms / HOUR_MS} /></label>
        <button type="submit">Set</button>
        <button type="button" onClick={remove}>Purge its records</button>
      </form>
    </section>
  );
}

function said(tenant: Tenant): string {
  const home = (name: string | null | undefined) => (name == null || name === OWN ? "topics of its own" : `the collection ${name}`);
  const here = `Its records go to ${home(tenant.collection)}.`;
  return tenant.switching_to == null ? here : `${here} They will go to ${home(tenant.switching_to)} once every group has read on.`;
}

const OWN = "own";
const SHARED = "shared";
const HOUR_MS = 3_600_000;
