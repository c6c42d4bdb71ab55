// A topic's records, as many as a page can show: the newest, the oldest, or from an offset or a time on.
// What is asked for stands in the address; they are read once, and again when somebody asks.

import { useEffect, useState } from "react";
import type { FormEvent } from "react";

import { read, reason } from "../ask";
import { bytes, count, plural, ZONE } from "../format";
import { Choice, Section, Sub, Trouble, When } from "../parts";
import type { Size } from "../parts";
import { address, go } from "../route";
import { hexLines, hexStart, inLines, visible } from "../text";
import type { Part, SeenRecord, TopicDetail } from "./types";

interface Seen {
  records: SeenRecord[];
  /** Else it took too long, or read too much, before it was done. */
  is_whole: boolean;
}

export function Records({ of, query }: { of: TopicDetail; query: URLSearchParams }) {
  const [asked, setAsked] = useState(0);
  const wanted = Object.fromEntries(NAMES.map((name) => [name, query.get(name) ?? ""]));
  const parameters = new URLSearchParams(Object.entries(wanted).filter(([, value]) => value !== "")).toString();
  const { seen, error } = useSeen(`api/v1/topics/${encodeURIComponent(of.name)}/records?${parameters}`, asked);
  const records = seen?.records ?? [];
  const size: Size = seen !== null ? records.length : error === null ? "reading" : "unknown";
  const to = (change: Record<string, string>) => address(["topics", of.name], { ...wanted, ...change });
  const note = seen !== null && !seen.is_whole ? `${records.length}; it took long, so that some are left out` : `${records.length}`;
  const is_back = isBack(wanted["from"] ?? "");
  const isMixed = of.partitions > 1 && wanted["partition"] === "";
  const offsets = records.map((one) => one.offset);
  const [least, most] = [Math.min(...offsets), Math.max(...offsets)];
  return (
    <>
      <Trouble text={error} />
      <Section id="records" title="Records" empty={emptyText(of, wanted)} size={size} note={<span aria-live="polite">{note}{isMixed && records.length > 0 && `, the ${is_back ? "newest" : "first"} of each partition`}</span>}
        above={<Asking key={parameters} of={of} wanted={wanted} again={() => setAsked(asked + 1)} />}>
        <thead>
          <tr><th scope="col">When</th><th scope="col" className="number">Partition</th><th scope="col" className="number">Offset</th><th scope="col">Key</th><th scope="col">Value</th></tr>
        </thead>
        <tbody>
          {records.map((one) => (
            <tr key={`${one.partition} ${one.offset}`} data-id={`${one.partition} ${one.offset}`}>
              <td><When at_ms={one.timestamp_ms} /></td>
              <td className="number">{one.partition}</td>
              <th scope="row" className="number">{count(one.offset)}</th>
              <td className="data">{one.key === null ? <i>none</i> : <code>{start(one.key)}</code>}</td>
              <td className="data"><Whole of={one} alone={to({ partition: String(one.partition), from: `offset:${one.offset}`, limit: "1" })} /></td>
            </tr>
          ))}
        </tbody>
      </Section>
      {records.length > 0 && !isMixed && (
        <nav className="pager" aria-label="Pages of records">
          {least > 0 && <a href={to({ from: `before:${least}` })}>Older records</a>}
          <a href={to({ from: `offset:${most + 1}` })}>Newer records</a>
        </nav>
      )}
    </>
  );
}

/** What is looked for. */
function Asking({ of, wanted, again }: { of: TopicDetail; wanted: Record<string, string>; again: () => void }) {
  const [kind, setKind] = useState(kindOf(wanted["from"] ?? ""));
  const [format, setFormat] = useState(wanted["format"] ?? "");
  const submit = (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    const form = new FormData(event.currentTarget);
    const text = (name: string) => String(form.get(name) ?? "").trim();
    const from = kind === "time" ? new Date(text("time")).toISOString() : kind === "offset" || kind === "before" ? `${kind}:${text("offset")}` : kind === "newest" ? "" : kind;
    const there = address(["topics", of.name], { partition: text("partition"), limit: text("limit"), from, format });
    if (there === location.hash) {
      again();
    } else {
      go(there);
    }
  };
  const known = wanted["from"] ?? "";
  return (
    <form role="search" className="filters" onSubmit={submit}>
      <Choice label="From" value={kind} onChange={setKind} options={KINDS} />
      {(kind === "offset" || kind === "before") && <label>Offset <input name="offset" type="number" min={0} step={1} required defaultValue={known.split(":", 2)[1] ?? ""} /></label>}
      {kind === "time" && <label>Time ({ZONE}) <input name="time" type="datetime-local" step={1} required defaultValue={localInput(known)} /></label>}
      {of.partitions > 1 && <label>Partition <input name="partition" type="number" min={0} max={of.partitions - 1} placeholder="all" defaultValue={wanted["partition"]} /></label>}
      <label>At most <input name="limit" type="number" min={1} max={200} placeholder="50" defaultValue={wanted["limit"]} /></label>
      <Choice label="Shown as" value={format} onChange={setFormat} options={FORMATS} />
      <button type="submit">Look</button>
    </form>
  );
}

/** A record's value in one line, which opens to all that there is of it. */
function Whole({ of, alone }: { of: SeenRecord; alone: string }) {
  const [isOpen, setOpen] = useState(false);
  const isCut = [of.key, of.value].some((part) => part?.is_cut === true) || of.headers_left_out > 0;
  return (
    <details onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>{of.value === null ? <i>none</i> : <code>{start(of.value)}</code>}</summary>
      {isOpen && (
        <>
          <Datum name="Key" of={of.key} />
          <Datum name="Value" of={of.value} />
          {of.headers.length > 0 && (
            <dl>{of.headers.map((header, at) => <div key={at}><dt>{visible(header.name)}</dt><dd>{header.value === null ? <i>none</i> : <code>{start(header.value)}</code>}</dd></div>)}</dl>
          )}
          {of.headers_left_out > 0 && <Sub>{plural(of.headers_left_out, "header")} more</Sub>}
          {isCut && <p><a href={alone}>Show it alone, and more of it</a></p>}
        </>
      )}
    </details>
  );
}

function Datum({ name, of }: { name: string; of: Part | null }) {
  if (of === null) {
    return <Sub>{name}: none</Sub>;
  }
  const kind = KIND_NAMES[of.type];
  const told = of.schema_id === undefined ? kind : `${kind}, schema ${of.schema_id}`;
  return (
    <>
      <Sub>{name}: {told}, {bytes(of.bytes)}{of.is_cut && ", of which this is the beginning"}</Sub>
      <pre tabIndex={0} aria-label={name}>{whole(of)}</pre>
    </>
  );
}

/** Reads once for each path, and again whenever `turn` is another one. */
function useSeen(path: string, turn: number): { seen: Seen | null; error: string | null } {
  const [known, setKnown] = useState<{ path: string; seen: Seen | null; error: string | null }>({ path, seen: null, error: null });
  useEffect(() => {
    const abort = new AbortController();
    const tell = (seen: Seen | null, error: string | null) => !abort.signal.aborted && setKnown({ path, seen, error });
    read<Seen>(path, abort.signal).then((seen) => tell(seen, null), (error: unknown) => tell(null, reason(error)));
    return () => abort.abort();
  }, [path, turn]);
  return known.path === path ? known : { seen: null, error: null };
}

function start(part: Part): string {
  const text = part.type === "BINARY" ? hexStart(part.data) : visible(part.data.slice(0, START_CHARS).replace(/\s+/g, " "));
  const isAll = part.type === "BINARY" ? part.bytes <= BINARY_START_BYTES : part.data.length <= START_CHARS && !part.is_cut;
  return isAll ? text : `${text} …`;
}

function whole(part: Part): string {
  if (part.type === "BINARY") {
    return hexLines(part.data);
  }
  // The beginning of a JSON text is none.
  return visible(part.type === "STRING" || part.is_cut ? part.data : inLines(part.data));
}

function isBack(from: string): boolean {
  return from === "" || from.startsWith("before:");
}

function kindOf(from: string): string {
  const kind = from.split(":", 1)[0] ?? "";
  return from === "" ? "newest" : KINDS.some(([name]) => name === kind) ? kind : "time";
}

/** A time as its input wants it, in the reader's zone. */
function localInput(from: string): string {
  const at = new Date(from);
  const shown = new Date(at.getTime() - at.getTimezoneOffset() * 60_000);
  return Number.isNaN(shown.getTime()) ? "" : shown.toISOString().slice(0, 19);
}

function emptyText(of: TopicDetail, wanted: Record<string, string>): string {
  const isAsked = NAMES.some((name) => name !== "format" && wanted[name] !== "");
  return isAsked && of.offsets.some((one) => one.end > one.start)
    ? "No record is there: look from the oldest on, or in another partition."
    : `It holds no record: write some with \`thalweg produce ${of.name}\`.`;
}

const NAMES = ["from", "partition", "limit", "format"];
const KINDS: [string, string][] = [["newest", "the newest"], ["oldest", "the oldest"], ["offset", "an offset on"], ["before", "before an offset"], ["time", "a time on"]];
const FORMATS: [string, string][] = [["", "is best read"], ["json", "JSON"], ["string", "text"], ["binary", "bytes"]];
const KIND_NAMES: Record<Part["type"], string> = { JSON: "JSON", STRING: "text", BINARY: "bytes", AVRO: "Avro", JSONSCHEMA: "JSON with a schema", PROTOBUF: "Protobuf" };
const START_CHARS = 120;
const BINARY_START_BYTES = 24;
