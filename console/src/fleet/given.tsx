// The class that an operator gives an agent that names none.

import type { FormEvent } from "react";

import { send, useActing, useAsked } from "../ask";
import { Trouble } from "../parts";
import type { Agent, FleetClass } from "./types";

export function GivenClass({ agent, again }: { agent: Agent; again: () => void }) {
  const classes = useAsked<{ classes: FleetClass[] }>("api/v1/classes", 10000);
  const { act, busy, trouble } = useActing(again);
  const others = (classes.value?.classes ?? []).filter((one) => one.name !== agent.class).slice(0, CLASSES_LISTED);
  const path = `api/v1/agents/${encodeURIComponent(agent.id)}/class`;
  const submit = (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    const given = new FormData(event.currentTarget).get("class");
    void act(() => send("PUT", path, { class: given }));
  };
  return (
    <section id="given" aria-labelledby="given-title">
      <h2 id="given-title">{agent.class === null ? "Give it a class" : "Its class was given to it"}</h2>
      {agent.class === null && others.length === 0 && classes.value !== null && <p className="empty">There is no class yet.</p>}
      <form onSubmit={submit}>
        {others.length > 0 && (
          <div className="filters">
            <label>
              Class to give
              <select name="class">{others.map((one) => <option key={one.name} value={one.name}>{one.name}</option>)}</select>
            </label>
          </div>
        )}
        <div className="actions">
          {others.length > 0 && <button type="submit" className="first" disabled={busy}>Give the class</button>}
          {agent.class_given && <button type="button" disabled={busy} onClick={() => void act(() => send("DELETE", path))}>Take the class back</button>}
        </div>
      </form>
      <Trouble text={trouble ?? classes.error} />
    </section>
  );
}

const CLASSES_LISTED = 500;
