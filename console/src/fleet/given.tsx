// The class that an operator gives an agent that names none.

import { useState } from "react";
import type { FormEvent } from "react";

import { reason, send, useAsked } from "../ask";
import { Trouble } from "../parts";
import type { Agent, FleetClass } from "./types";

export function GivenClass({ agent, again }: { agent: Agent; again: () => void }) {
  const classes = useAsked<{ classes: FleetClass[] }>("api/v1/classes", 10000);
  const [trouble, setTrouble] = useState<string | null>(null);
  const others = (classes.value?.classes ?? []).filter((one) => one.name !== agent.class).slice(0, CLASSES_LISTED);
  const path = `api/v1/agents/${encodeURIComponent(agent.id)}/class`;
  const act = async (method: string, body?: unknown) => {
    try {
      await send(method, path, body);
      setTrouble(null);
    } catch (error) {
      setTrouble(reason(error));
    }
    again();
  };
  const submit = (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    void act("PUT", { class: new FormData(event.currentTarget).get("class") });
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
          {others.length > 0 && <button type="submit" className="first">Give the class</button>}
          {agent.class_given && <button type="button" onClick={() => void act("DELETE")}>Take the class back</button>}
        </div>
      </form>
      <Trouble text={trouble ?? classes.error} />
    </section>
  );
}

const CLASSES_LISTED = 500;
