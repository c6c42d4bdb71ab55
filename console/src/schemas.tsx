// The schema registry's subjects: all of them with their last schemas, and one with its versions, what is
// compatible with them, and whether another schema would be.

import { useState } from "react";

import { send, useActing, useAsked } from "./ask";
import { bytes, plural } from "./format";
import { Listing } from "./listing";
import type { Column } from "./listing";
import { Choice, Sub, sizeOf, Trouble } from "./parts";
import { address, go } from "./route";
import { inLines, visible } from "./text";

interface Version {
  subject: string;
  version: number;
  id: number;
  /** Avro where it is not said. */
  schemaType?: "JSON" | "PROTOBUF";
  references?: { name: string; subject: string; version: number }[];
  schema: string;
}

export function SchemasPage({ query }: { query: URLSearchParams }) {
  const asked = useAsked<Version[]>(`${REGISTRY}/schemas?latestOnly=true&limit=${SUBJECTS_ASKED}`, 20_000);
  const subjects = asked.value ?? [];
  return (
    <main>
      <Trouble text={asked.error} />
      {subjects.length === SUBJECTS_ASKED && <p className="empty">There may be more subjects than these: `thalweg schemas list` has all of them.</p>}
      <Listing
        id="subjects"
        title="Schemas"
        empty="No schema yet: serializers register theirs, or you with `thalweg schemas register`."
        size={sizeOf(asked, (value) => value.length)}
        items={subjects}
        columns={COLUMNS}
        key_of={(one) => one.subject}
        texts={(one) => [one.subject, one.schema]}
        path={["schemas"]}
        query={query}
      />
    </main>
  );
}

export function SubjectPage({ name, query }: { name: string; query: URLSearchParams }) {
  const path = `${REGISTRY}/subjects/${encodeURIComponent(name)}`;
  const wanted = query.get("version") ?? "";
  const numbers = useAsked<number[]>(`${path}/versions`, 10_000);
  const one = useAsked<Version>(`${path}/versions/${wanted === "" ? "latest" : encodeURIComponent(wanted)}`, 10_000);
  const config = useAsked<{ compatibilityLevel: string }>(`${REGISTRY}/config/${encodeURIComponent(name)}?defaultToGlobal=true`, 10_000);
  const mode = useAsked<{ mode: string }>(`${REGISTRY}/mode/${encodeURIComponent(name)}?defaultToGlobal=true`, 10_000);
  const versions = [...(numbers.value ?? [])].reverse();
  const newest = versions[0];
  const found = one.value;
  return (
    <main>
      <p><a href="#/schemas">All schemas</a>{topicOf(name) !== null && <>, <a href={address(["topics", topicOf(name) ?? ""])}>the topic {topicOf(name)}</a></>}</p>
      <h2 className="title">{name}</h2>
      <Trouble text={numbers.error ?? one.error ?? config.error ?? mode.error} />
      {found === null ? one.error === null && <p className="empty">Reading…</p> : (
        <>
          <section id="summary" aria-labelledby="summary-title">
            <h2 id="summary-title">Summary</h2>
            <dl>
              <div><dt>Version</dt><dd>{found.version} of {plural(versions.length, "version")}</dd></div>
              <div><dt>Type</dt><dd>{typeOf(found)}</dd></div>
              <div><dt>Id</dt><dd>{found.id}</dd></div>
              <div><dt>Compatibility</dt><dd>{config.value === null ? "–" : <>{config.value.compatibilityLevel}<Sub>{LEVELS[config.value.compatibilityLevel]}</Sub></>}</dd></div>
              <div><dt>Mode</dt><dd>{mode.value?.mode ?? "–"}</dd></div>
              {(found.references ?? []).map((of) => (
                <div key={of.name}><dt>Refers to</dt><dd><a href={address(["schemas", of.subject], { version: String(of.version) })}>{of.subject}, version {of.version}</a><Sub>as {of.name}</Sub></dd></div>
              ))}
            </dl>
          </section>
          <section id="schema" aria-labelledby="schema-title">
            <h2 id="schema-title">Schema <small>{bytes(found.schema.length)}</small></h2>
            {versions.length > 1 && (
              <div className="filters">
                <Choice label="Version" value={String(found.version)} options={versions.map((number): [string, string] => [String(number), number === newest ? `${number}, the last one` : String(number)])} onChange={(version) => go(address(["schemas", name], { version }))} />
              </div>
            )}
            <pre tabIndex={0} aria-label="Schema">{shown(found)}</pre>
          </section>
          <Check key={`${found.version}`} subject={name} of={found} />
        </>
      )}
    </main>
  );
}

/** Whether another schema could be registered; the form begins with the one that is shown. */
function Check({ subject, of }: { subject: string; of: Version }) {
  const [text, setText] = useState(() => (of.schemaType === "PROTOBUF" ? of.schema : inLines(of.schema)));
  const [told, setTold] = useState<{ is_compatible: boolean; messages: string[] } | null>(null);
  const { act, busy, trouble } = useActing(() => undefined);
  const check = () => act(async () => {
    setTold(null);
    const path = `${REGISTRY}/compatibility/subjects/${encodeURIComponent(subject)}/versions?verbose=true`;
    setTold(await send("POST", path, { schema: text, schemaType: of.schemaType ?? "AVRO", references: of.references ?? [] }));
  });
  return (
    <section id="check" aria-labelledby="check-title">
      <h2 id="check-title">Would another one fit?</h2>
      <form onSubmit={(event) => { event.preventDefault(); void check(); }}>
        <label className="wide">
          Schema to check
          <textarea rows={10} spellCheck={false} value={text} onChange={(event) => { setText(event.currentTarget.value); setTold(null); }} />
        </label>
        <div className="actions"><button type="submit" disabled={busy || text.trim() === ""}>Check</button></div>
        <Trouble text={trouble ?? (told?.is_compatible === false ? "It does not fit." : null)} />
        {told?.is_compatible === true && <p className="said" role="status">It fits: it could be registered as the next version.</p>}
        {told !== null && told.messages.length > 0 && <ul className="problems">{told.messages.map((message, at) => <li key={at}>{message}</li>)}</ul>}
      </form>
    </section>
  );
}

function shown(of: Version): string {
  return visible(of.schemaType === "PROTOBUF" ? of.schema : inLines(of.schema));
}

function typeOf(of: Version): string {
  return of.schemaType === undefined ? "Avro" : of.schemaType === "JSON" ? "JSON Schema" : "Protobuf";
}

/** The topic whose keys or values a subject is about, by its name. */
function topicOf(subject: string): string | null {
  return subject.startsWith(":") ? null : (/^(.+)-(?:value|key)$/.exec(subject)?.[1] ?? null);
}

const COLUMNS: [Column<Version>, ...Column<Version>[]] = [
  { name: "subject", title: "Subject", value: (one) => one.subject, cell: (one) => <a href={address(["schemas", one.subject])}>{one.subject}</a> },
  { name: "type", title: "Type", value: typeOf },
  { name: "version", title: "Last version", is_number: true, value: (one) => one.version },
  { name: "id", title: "Id", is_number: true, value: (one) => one.id, cell: (one) => String(one.id) },
  { name: "size", title: "Size", is_number: true, value: (one) => one.schema.length, cell: (one) => bytes(one.schema.length) },
];
const LEVELS: Record<string, string> = {
  NONE: "anything may follow",
  BACKWARD: "readers of a new version read what the last one wrote",
  BACKWARD_TRANSITIVE: "readers of a new version read what any before wrote",
  FORWARD: "readers of the last version read what a new one writes",
  FORWARD_TRANSITIVE: "readers of any version before read what a new one writes",
  FULL: "both ways, with the last version",
  FULL_TRANSITIVE: "both ways, with any version before",
};
const REGISTRY = "api/v1/registry";
const SUBJECTS_ASKED = 2000;
