// The text of a statement with what belongs to it, and errors shown at their character.

import { useState } from "react";

import { reason, Refusal, send, useActing } from "../ask";
import type { Statement } from "../api";
import { Choice, Trouble } from "../parts";
import { address, go } from "../route";

/** What a text would do. */
interface Explained {
  source: string;
  sink: string;
  format: string;
  fields: string[];
  keeps_state: boolean;
}

interface Outcome {
  /** What a text would do. */
  said: string | null;
  trouble: string | null;
  /** The line in which the error is, and a mark under its character. */
  place: string | null;
}

const NOTHING: Outcome = { said: null, trouble: null, place: null };

/** Adds a statement, or puts another form in the place of `statement`; `replaced` hears what became of that. */
export function Editor({ statement, again, replaced }: { statement: Statement | null; again: () => void; replaced?: (said: string | null) => void }) {
  const [text, setText] = useState(statement?.text ?? "");
  const [name, setName] = useState("");
  const [language, setLanguage] = useState<string>(statement?.language ?? "sql");
  const [format, setFormat] = useState<string>(statement?.format ?? "");
  const [output, setOutput] = useState<string>(statement?.output ?? "rows");
  const [outcome, setOutcome] = useState<Outcome>(NOTHING);
  const { act, busy } = useActing(again);
  const form = () => ({
    text,
    language,
    output,
    ...(format !== "" && { format }),
    ...(name !== "" && { name }),
    // What cannot be changed here stays as it is.
    ...(statement !== null && { targets: statement.targets, start: statement.start, lateness: statement.lateness, policies: statement.policies }),
  });
  const attempt = (what: () => Promise<string | null>) => act(async () => {
    try {
      setOutcome({ ...NOTHING, said: await what() });
    } catch (error) {
      setOutcome({ said: null, trouble: reason(error), place: error instanceof Refusal ? marked(text, error) : null });
    }
  });
  const edit = (changed: string) => {
    setText(changed);
    setOutcome(NOTHING);
    replaced?.(null);
  };
  const explain = () => attempt(async () => {
    const told = await send<Explained>("POST", "api/v1/statements/explain", form());
    const fields = told.fields.length === 0 ? "no field" : told.fields.join(", ");
    return `Reads ${fields} of ${told.source} as ${told.format}; rows go to ${told.sink}. ${told.keeps_state ? "It keeps windows." : "It keeps nothing."}`;
  });
  const submit = () => attempt(async () => {
    if (statement === null) {
      const added = await send<Statement>("POST", "api/v1/statements", form());
      go(address(["statements", added.id]));
      return null;
    }
    const path = `api/v1/statements/${encodeURIComponent(statement.id)}`;
    const { state_kept } = await send<{ state_kept: boolean }>("PUT", path, form());
    replaced?.(state_kept ? "It is replaced and kept its state." : "It is replaced and begins with a new state.");
    return null;
  });
  const isHeld = busy || text.trim() === "";
  return (
    <section id="editor" aria-labelledby="editor-title">
      <h2 id="editor-title">{statement === null ? "Add a statement" : "Replace it"}</h2>
      <form onSubmit={(event) => { event.preventDefault(); void submit(); }}>
        <label className="wide">
          Statement
          <textarea rows={7} spellCheck={false} value={text} placeholder={EXAMPLES[language] ?? ""} onChange={(event) => edit(event.currentTarget.value)} />
        </label>
        <div className="filters">
          {statement === null && <label>Name <input value={name} onChange={(event) => setName(event.currentTarget.value)} /></label>}
          <Choice label="Language" value={language} options={[["sql", "SQL"], ["epl", "EPL"]]} onChange={setLanguage} />
          <Choice label="Payloads are" value={format} options={FORMATS} onChange={setFormat} />
          <Choice label="Rows become" value={output} options={[["rows", "JSON objects"], ["observations", "Observations"]]} onChange={setOutput} />
        </div>
        <div className="actions">
          <button type="button" disabled={isHeld} onClick={() => void explain()}>Explain</button>
          <button type="submit" className="first" disabled={isHeld}>{statement === null ? "Add" : "Replace"}</button>
        </div>
        {outcome.said !== null && <p className="said" role="status">{outcome.said}</p>}
        <Trouble text={outcome.trouble} />
        {outcome.place !== null && <pre className="place">{outcome.place}</pre>}
      </form>
    </section>
  );
}

/** The line that a refusal names, with a mark under the character; null where it names none. */
export function marked(text: string, refusal: Refusal): string | null {
  if (refusal.line === null || refusal.column === null) {
    return null;
  }
  const line = text.split("\n")[refusal.line - 1];
  if (line === undefined) {
    return null;
  }
  const before = [...line].slice(0, refusal.column - 1).map((char) => (char === "\t" ? "\t" : " ")).join("");
  return `${line}\n${before}^`;
}

const FORMATS: [string, string][] = [
  ["", "as the table of types says"],
  ...["json", "senml", "senml-cbor", "observation", "observation097", "cbor", "raw"].map((one): [string, string] => [one, one]),
];

const EXAMPLES: Record<string, string> = {
  sql: `INSERT INTO kafka.means
SELECT device, avg(v) AS mean
FROM TUMBLE(mqtt."devices/+", INTERVAL '10 seconds')
GROUP BY device`,
  epl: `insert into kafka.means
select device, avg(v) as mean
from "devices/+"#time_batch(10 sec)
group by device`,
};
