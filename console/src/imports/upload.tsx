// Sending a file: in pieces, so that a connection that breaks costs the piece that was under way.

import { useEffect, useRef, useState } from "react";
import type { FormEvent } from "react";

import { pause, read, reason, Refusal, send } from "../ask";
import { bytes } from "../format";
import { Choice, Trouble } from "../parts";
import { address, go } from "../route";
import type { Job } from "./types";

interface Sending {
  name: string;
  sent: number;
  size: number;
}

/** `tenant` is the one whose imports are shown, empty where they are all tenants'. */
export function Upload({ again, tenant }: { again: () => void; tenant: string }) {
  const [file, setFile] = useState<File | null>(null);
  const [format, setFormat] = useState("");
  const [kind, setKind] = useState("bulk");
  const [sink, setSink] = useState("both");
  const [sending, setSending] = useState<Sending | null>(null);
  const [trouble, setTrouble] = useState<string | null>(null);
  const abort = useRef<AbortController | null>(null);
  // Whoever leaves the page stops sending; the same key goes on where it stopped.
  useEffect(() => () => abort.current?.abort(), []);

  const guessed = file === null ? "" : formatOf(file.name);
  const begin = async (form: FormData, chosen: File) => {
    const asked = new URLSearchParams({ resumable: "true", name: chosen.name, format: format === "" ? guessed : format, class: kind, sink });
    for (const name of TEXTS) {
      const text = String(form.get(name) ?? "").trim();
      if (text !== "") {
        asked.set(name, text);
      }
    }
    const stop = new AbortController();
    abort.current = stop;
    setTrouble(null);
    const tell = (sent: number) => setSending({ name: chosen.name, sent, size: chosen.size });
    tell(0);
    try {
      const job = await sendFile(chosen, asked, tell, stop.signal);
      again();
      go(address(["imports", job.id]));
    } catch (error) {
      if (!stop.signal.aborted) {
        setTrouble(reason(error));
        again();
      }
    } finally {
      setSending(null);
    }
  };
  const submit = (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    if (file !== null) {
      void begin(new FormData(event.currentTarget), file);
    }
  };
  return (
    <section id="upload" aria-labelledby="upload-title">
      <h2 id="upload-title">Import a file</h2>
      <form onSubmit={submit}>
        <div className="filters">
          <label>File <input type="file" required onChange={(event) => setFile(event.currentTarget.files?.[0] ?? null)} /></label>
          <label>Tenant <input key={tenant} name="tenant" placeholder="default" defaultValue={tenant} /></label>
          <Choice label="Format" value={format} onChange={setFormat} options={[["", guessed === "" ? "by the file's ending" : `${guessed}, by its ending`], ...FORMATS.map((name): [string, string] => [name, name])]} />
          <label>Profile <input name="profile" placeholder="none" /></label>
          <label>Id field <input name="key" placeholder="of JSON lines and CSV" /></label>
          <label>Encoding <input name="encoding" placeholder="UTF-8" /></label>
        </div>
        <div className="filters">
          <Choice label="Records go to" value={sink} onChange={setSink} options={[["both", "topic and table"], ["records", "the table"], ["topic", "the topic"]]} />
          <label>Topic <input name="topic" placeholder="imports-TENANT" /></label>
          <Choice label="Class" value={kind} onChange={setKind} options={[["bulk", "bulk"], ["interactive", "interactive: somebody waits"]]} />
          <label>Key to send it once <input name="idempotency_key" placeholder="none" /></label>
        </div>
        <div className="actions">
          <button type="submit" className="first" disabled={file === null || sending !== null || (format === "" && guessed === "")}>Import</button>
          {sending !== null && <button type="button" onClick={() => abort.current?.abort()}>Stop sending</button>}
        </div>
        {sending !== null && (
          <p role="status">
            <progress value={sending.sent} max={Math.max(1, sending.size)} aria-label="sent" /> {bytes(sending.sent)} of {bytes(sending.size)} of {sending.name}
          </p>
        )}
        <Trouble text={trouble} />
      </form>
    </section>
  );
}

/** Sends a file as a new job, or goes on with the one of the same key. */
async function sendFile(file: File, asked: URLSearchParams, tell: (sent: number) => void, stop: AbortSignal): Promise<Job> {
  let job = await send<Job>("POST", `api/v1/imports?${asked.toString()}`, undefined, stop);
  const path = `api/v1/imports/${encodeURIComponent(job.id)}`;
  let failures = 0;
  while (job.state === "uploading") {
    const from = job.bytes_total;
    tell(from);
    const piece = file.slice(from, from + PIECE_BYTES);
    const isLast = from + piece.size >= file.size;
    try {
      job = await send<Job>("PATCH", `${path}/file?offset=${from}&last=${isLast}`, piece, stop);
      failures = 0;
    } catch (error) {
      failures += 1;
      const isFinal = error instanceof Refusal && error.status < 500 && error.status !== 409 && error.status !== 429;
      if (isFinal || stop.aborted || failures > FAILURES_MAX) {
        throw error;
      }
      // How much of the piece came is the server's to say.
      await pause(RETRY_MS * failures);
      job = await read<Job>(path, stop).catch(() => job);
    }
  }
  tell(file.size);
  return job;
}

/** The format that a file's ending tells, or nothing. */
function formatOf(name: string): string {
  const endings: Record<string, string> = { mrc: "marc", marc: "marc", utf8: "marc", xml: "marcxml", json: "jsonl", jsonl: "jsonl", ndjson: "jsonl", csv: "csv", tsv: "csv" };
  return endings[name.toLowerCase().split(".").at(-1) ?? ""] ?? "";
}

const FORMATS = ["marc", "marcxml", "marcjson", "jsonl", "csv"];
const TEXTS = ["tenant", "profile", "key", "encoding", "topic", "idempotency_key"];
const PIECE_BYTES = 8 << 20;
const FAILURES_MAX = 10;
const RETRY_MS = 500;
