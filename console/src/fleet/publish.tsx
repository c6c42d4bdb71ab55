// A new version of a class's flow: its text is checked, then given to all at once or in steps.

import { useState } from "react";
import type { ChangeEvent, FormEvent } from "react";

import { reason, Refusal, send, useActing } from "../ask";
import type { Problem } from "../ask";
import { count } from "../format";
import { Sub, Trouble } from "../parts";

interface Outcome {
  said: string | null;
  trouble: string | null;
  problems: Problem[];
}

const NOTHING: Outcome = { said: null, trouble: null, problems: [] };

/** What is asked before a flow goes to all agents of a class at once. */
export function toAll(flow: string, agents: number): string {
  return `${flow} goes to ${agents === 1 ? "the only agent" : `all ${count(agents)} agents`} of the class at once. "In steps" would halt where they fail.`;
}

/** `agents` is how many the class has. */
export function Publish({ class_name, agents, again }: { class_name: string; agents: number; again: () => void }) {
  const [text, setText] = useState("");
  const [steps, setSteps] = useState("all");
  const [outcome, setOutcome] = useState<Outcome>(NOTHING);
  const { act, busy } = useActing(again);
  const path = `api/v1/classes/${encodeURIComponent(class_name)}`;

  const open = async (event: ChangeEvent<HTMLInputElement>) => {
    const file = event.currentTarget.files?.[0];
    if (file !== undefined) {
      setText(await file.text());
      setOutcome(NOTHING);
    }
  };
  const attempt = (what: () => Promise<Outcome>) => act(async () => {
    try {
      setOutcome(await what());
    } catch (error) {
      setOutcome({ said: null, trouble: reason(error), problems: error instanceof Refusal ? error.problems : [] });
    }
  });
  const check = () => attempt(async () => {
    const checked = await send<{ manifest_hash: string | null; problems: Problem[] }>("POST", `${path}/flows/check`, text);
    const against = checked.manifest_hash === null ? "No agent described its components, so they were not checked." : "It fits the class's agents.";
    return { said: checked.problems.length === 0 ? against : null, trouble: checked.problems.length === 0 ? null : "It does not fit the class's agents.", problems: checked.problems };
  });
  const publish = (form: FormData) => attempt(async () => {
    const inSteps = steps === "steps";
    const stored = await send<{ flow_id: string; version: number }>("POST", `${path}/flows${inSteps ? "?deploy=false" : ""}`, text);
    if (!inSteps) {
      return { ...NOTHING, said: `Version ${stored.version} is published.` };
    }
    const number = (name: string) => Number(form.get(name));
    await send("POST", `${path}/rollouts`, {
      flow_id: stored.flow_id,
      canary_percent: number("canary"),
      batch_agents: number("batch"),
      batch_interval: `${number("interval")}s`,
      failures_percent: number("failures"),
    });
    return { ...NOTHING, said: `Version ${stored.version} is being rolled out.` };
  });
  const submit = (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    if (steps !== "steps" && agents > 0 && !window.confirm(toAll("The flow", agents))) {
      return;
    }
    void publish(new FormData(event.currentTarget));
  };
  return (
    <section id="publish" aria-labelledby="publish-title">
      <h2 id="publish-title">Publish a flow</h2>
      <form onSubmit={submit}>
        <label>From a file <input type="file" accept=".yml,.yaml,.json" onChange={(event) => void open(event)} /></label>
        <label className="wide">
          MiNiFi YAML or NiFi flow JSON
          <textarea rows={8} spellCheck={false} value={text} onChange={(event) => { setText(event.currentTarget.value); setOutcome(NOTHING); }} />
        </label>
        <fieldset>
          <legend>Who gets it</legend>
          <label><input type="radio" name="who" value="all" checked={steps === "all"} onChange={() => setSteps("all")} /> All agents at once</label>
          <label><input type="radio" name="who" value="steps" checked={steps === "steps"} onChange={() => setSteps("steps")} /> In steps</label>
          {steps === "steps" && (
            <div className="filters">
              <label>First, percent <input name="canary" type="number" min={0} max={100} defaultValue={5} /></label>
              <label>Agents at a time <input name="batch" type="number" min={1} defaultValue={100} /></label>
              <label>Seconds between <input name="interval" type="number" min={0} defaultValue={10} /></label>
              <label>Halt above, percent failed <input name="failures" type="number" min={0} max={100} defaultValue={20} /></label>
            </div>
          )}
        </fieldset>
        <div className="actions">
          <button type="button" disabled={busy || text.trim() === ""} onClick={() => void check()}>Check</button>
          <button type="submit" className="first" disabled={busy || text.trim() === ""}>Publish</button>
        </div>
        {outcome.said !== null && <p className="said" role="status">{outcome.said}</p>}
        <Trouble text={outcome.trouble} />
        {outcome.problems.length > 0 && (
          <ul className="problems">
            {outcome.problems.map((problem, index) => <li key={index}><b>{problem.component}{problem.property !== null && `, ${problem.property}`}</b><Sub>{problem.reason}</Sub></li>)}
          </ul>
        )}
      </form>
    </section>
  );
}
