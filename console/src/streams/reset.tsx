// Having a group go on from other offsets: what would change is shown first, and changed only then. As with
// Kafka's own tools that is not done while the group has members, who would commit theirs over it.

import { useState } from "react";
import type { FormEvent } from "react";

import { send, useActing } from "../ask";
import { count, plural, ZONE } from "../format";
import { Choice, firstOf, Section, Trouble } from "../parts";
import { address } from "../route";
import type { GroupDetail, Move } from "./types";

interface Wanted {
  topics?: { topic: string; partitions?: number[] }[];
  all_topics?: boolean;
  to: string | { offset: number } | { at_ms: number };
}

interface Shown {
  wanted: Wanted;
  moves: Move[];
  is_done: boolean;
}

export function ResetOffsets({ of, again }: { of: GroupDetail; again: () => void }) {
  const [to, setTo] = useState("earliest");
  const [topic, setTopic] = useState("");
  const [shown, setShown] = useState<Shown | null>(null);
  const { act, busy, trouble } = useActing(again);
  const topics = [...new Set(of.offsets.map((one) => one.topic))];
  const reset = (wanted: Wanted, execute: boolean) => act(async () => {
    const path = `api/v1/groups/${encodeURIComponent(of.group)}/reset-offsets`;
    setShown(null);
    const { offsets } = await send<{ offsets: Move[] }>("POST", path, { ...wanted, execute });
    setShown({ wanted, moves: offsets, is_done: execute });
  });
  const submit = (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    const form = new FormData(event.currentTarget);
    const text = (name: string) => String(form.get(name) ?? "").trim();
    const partitions = text("partitions").split(",").map((one) => one.trim()).filter((one) => one !== "").map(Number);
    const scope = topic === "" ? { all_topics: true } : { topics: [{ topic, ...(partitions.length > 0 && { partitions }) }] };
    const place = to === "offset" ? { offset: Number(text("offset")) } : to === "time" ? { at_ms: new Date(text("time")).getTime() } : to;
    void reset({ ...scope, to: place }, false);
  };
  // What was shown is not what another form asks for.
  const change = (set: (value: string) => void) => (value: string) => {
    set(value);
    setShown(null);
  };
  if (of.members.length > 0) {
    return (
      <section id="reset" aria-labelledby="reset-title">
        <h2 id="reset-title">Reset its offsets</h2>
        <p className="empty">Its {plural(of.members.length, "member")} would commit their own offsets over it: stop them first.</p>
      </section>
    );
  }
  if (topics.length === 0) {
    return null;
  }
  return (
    <section id="reset" aria-labelledby="reset-title">
      <h2 id="reset-title">Reset its offsets</h2>
      <form className="filters" onSubmit={submit} onInput={() => setShown(null)}>
        <Choice label="Topic" value={topic} onChange={change(setTopic)} options={[["", "all that it reads"], ...topics.map((one): [string, string] => [one, one])]} />
        {topic !== "" && <label>Partitions <input name="partitions" placeholder="all, or 0,1" pattern="[0-9]+( *, *[0-9]+)*" title="numbers with commas between them" /></label>}
        <Choice label="To" value={to} onChange={change(setTo)} options={TARGETS} />
        {to === "offset" && <label>Offset <input name="offset" type="number" min={0} step={1} required /></label>}
        {to === "time" && <label>Time ({ZONE}) <input name="time" type="datetime-local" step={1} required /></label>}
        <button type="submit" disabled={busy}>Show what changes</button>
      </form>
      <Trouble text={trouble} />
      {shown !== null && <Moves of={shown} busy={busy} set={() => void reset(shown.wanted, true)} />}
    </section>
  );
}

function Moves({ of, busy, set }: { of: Shown; busy: boolean; set: () => void }) {
  const changed = of.moves.filter((one) => one.from !== one.to);
  const { shown, note } = firstOf(changed, MOVES_SHOWN);
  const same = of.moves.length - changed.length;
  return (
    <>
      <Section id="moves" title={of.is_done ? "Changed" : "What would change"} empty="Nothing: it is there already." size={shown.length} note={same === 0 ? note : `${note}; ${plural(same, "partition")} already there`}>
        <thead>
          <tr><th scope="col">Topic</th><th scope="col" className="number">Partition</th><th scope="col" className="number">Its offset</th><th scope="col" className="number">Goes on at</th><th scope="col">Which is</th></tr>
        </thead>
        <tbody>
          {shown.map((one) => (
            <tr key={`${one.topic} ${one.partition}`} data-id={`${one.topic} ${one.partition}`}>
              <th scope="row"><a href={address(["topics", one.topic])}>{one.topic}</a></th>
              <td className="number">{one.partition}</td>
              <td className="number">{one.from === null ? "none yet" : count(one.from)}</td>
              <td className="number">{count(one.to)}</td>
              <td>{told(one)}</td>
            </tr>
          ))}
        </tbody>
      </Section>
      {of.is_done && <p className="said" role="status">Its offsets are reset.</p>}
      {!of.is_done && changed.length > 0 && <div className="actions"><button type="button" className="grave" disabled={busy} onClick={set}>Reset {plural(changed.length, "partition")}</button></div>}
    </>
  );
}

/** What a move means for who reads on. */
function told({ from, to }: Move): string {
  if (from === null) {
    return "a first offset";
  }
  return to < from ? `${plural(from - to, "offset")} back: what is there is read again` : `${plural(to - from, "offset")} further: what is there is left out`;
}

const TARGETS: [string, string][] = [["earliest", "the oldest record"], ["latest", "after the newest record"], ["time", "a time"], ["offset", "an offset"]];
const MOVES_SHOWN = 1000;
