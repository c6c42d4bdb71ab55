// What happened in the fleet, newest first.

import { useAsked } from "../ask";
import type { Asked } from "../ask";
import { Ago, Badge, Choice, Section, sizeOf, Trouble } from "../parts";
import { address, go } from "../route";
import type { FleetEvent } from "./types";

export function EventsPage({ query }: { query: URLSearchParams }) {
  const filters = Object.fromEntries(FILTERS.map((name) => [name, query.get(name) ?? ""]));
  const before = query.get("before") ?? "";
  const asked = new URLSearchParams({ limit: "100" });
  for (const [name, value] of Object.entries({ ...filters, before })) {
    if (value.trim() !== "") {
      asked.set(name, value.trim());
    }
  }
  const page = useAsked<{ events: FleetEvent[]; next: string | null }>(`api/v1/events?${asked.toString()}`, 3000);
  const set = (name: string, value: string, replaces = false) => go(address(["events"], { ...filters, [name]: value }), replaces);
  const text = (name: string, label: string) => (
    <label>
      {label}
      <input type="search" value={filters[name]} placeholder="its whole name" onChange={(event) => set(name, event.currentTarget.value, true)} />
    </label>
  );
  return (
    <main>
      <form role="search" className="filters" onSubmit={(event) => event.preventDefault()}>
        <Choice label="Level" value={filters["level"] ?? ""} onChange={(value) => set("level", value)} options={[["", "any"], ["info", "info and graver"], ["warn", "warnings and errors"], ["error", "errors"]]} />
        <Choice label="Kind" value={filters["kind"] ?? ""} onChange={(value) => set("kind", value)} options={[["", "any"], ...KINDS.map((kind): [string, string] => [kind, kind])]} />
        {text("class", "Class")}
        {text("agent", "Agent")}
      </form>
      <Trouble text={page.error} />
      <EventsTable asked={page} empty="Nothing of that kind happened." />
      <nav className="pager" aria-label="Pages of events">
        {before !== "" && <a href={address(["events"], filters)}>Newest</a>}
        {page.value !== null && page.value.next !== null && <a href={address(["events"], { ...filters, before: page.value.next })}>Older</a>}
      </nav>
    </main>
  );
}

export function EventsTable({ asked, empty }: { asked: Asked<{ events: FleetEvent[] }>; empty: string }) {
  const events = asked.value?.events ?? [];
  return (
    <Section id="events" title="Events" empty={empty} size={sizeOf(asked, (value) => value.events.length)}>
      <thead><tr><th scope="col">When</th><th scope="col">Level</th><th scope="col">What</th><th scope="col">Agent</th><th scope="col">Class</th></tr></thead>
      <tbody>
        {events.map((event) => (
          <tr key={event.id}>
            <td><Ago at_ms={event.at_ms} /></td>
            <td><Badge kind={event.level === "error" ? "bad" : "calm"}>{event.level}</Badge></td>
            <th scope="row">{event.kind}<div className="sub">{event.message}</div></th>
            <td>{event.agent_id === null ? "–" : <a href={address(["agents", event.agent_id])}>{event.agent_id}</a>}</td>
            <td>{event.class === null ? "–" : <a href={address(["classes", event.class])}>{event.class}</a>}</td>
          </tr>
        ))}
      </tbody>
    </Section>
  );
}

const FILTERS = ["level", "kind", "class", "agent"];
const KINDS = ["agent-registered", "agent-missing", "agent-back", "agent-removed", "operation-failed", "rollout-halted", "rollout-done", "bulletin", "duplicate-identifier", "certificate-ending", "agent-over-bounds"];
