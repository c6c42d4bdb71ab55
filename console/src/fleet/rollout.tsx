// How far a roll-out has come, and what can be done about it.

import { send, useActing } from "../ask";
import { age, plural } from "../format";
import { useHistory } from "../history";
import { Ago, Badge, Shares, Sub, Trouble } from "../parts";
import type { Tone } from "../parts";
import { RatePlot } from "../plot";
import type { Rollout } from "./types";

interface Props {
  rollout: Rollout;
  at_ms: number;
  versions: Map<string, number>;
  again: () => void;
}

export function RolloutCard({ rollout, at_ms, versions, again }: Props) {
  const { act, busy, trouble } = useActing(again);
  const { progress } = rollout;
  const history = useHistory(at_ms, { reached: progress.reached, deployed: progress.deployed, failed: progress.failed });
  const version = versions.get(rollout.flow_id);
  const wish = (name: string) => act(() => send("POST", `api/v1/rollouts/${rollout.id}/${name}`));
  const stop = () => {
    if (window.confirm("The roll-out ends for good where it is; agents that have the flow keep it.")) {
      void wish("abort");
    }
  };
  const back = () => {
    if (window.confirm(`${plural(progress.reached, "agent")} get the flow before again, all at once.`)) {
      void wish("rollback");
    }
  };
  const waiting = Math.max(0, progress.agents - progress.deployed - progress.failed - progress.pending - progress.offline);
  return (
    <figure id="rollout">
      <figcaption>
        Roll-out of version {version ?? rollout.flow_id} <span aria-live="polite"><Badge kind={TONES[rollout.state]}>{WORDS[rollout.state]}</Badge></span>
        <Sub>{plan(rollout)}, begun <Ago at_ms={rollout.created_ms} /></Sub>
        {rollout.reason !== "" && <p className={rollout.state === "halted" ? "trouble" : "sub"} role="status">{rollout.reason}</p>}
      </figcaption>
      <Shares label="Agents of the class" parts={[
        { label: "deployed", value: progress.deployed, tone: "river" },
        { label: "at it", value: progress.pending, tone: "good" },
        { label: "failed", value: progress.failed, tone: "bad" },
        { label: "away", value: progress.offline, tone: "calm" },
        { label: "to come", value: waiting, tone: "calm" },
      ]} />
      <RatePlot rates={history} unit="agents" lines={["reached", "deployed", "failed"].map((name) => ({ key: name, label: name }))} />
      <Trouble text={trouble} />
      <div className="actions">
        {rollout.state === "running" && <button type="button" disabled={busy} onClick={() => void wish("pause")}>Pause</button>}
        {(rollout.state === "paused" || rollout.state === "halted") && <button type="button" disabled={busy} onClick={() => void wish("resume")}>Resume</button>}
        {OPEN.has(rollout.state) && <button type="button" disabled={busy} onClick={stop}>Stop here</button>}
        {rollout.state !== "rolled_back" && rollout.previous_flow_id !== null && <button type="button" className="grave" disabled={busy} onClick={back}>Back to the flow before</button>}
      </div>
    </figure>
  );
}

function plan(rollout: Rollout): string {
  const canary = rollout.canary_percent > 0 ? `${rollout.canary_percent} % first, ` : "";
  return `${canary}${plural(rollout.batch_agents, "agent")} every ${age(rollout.batch_interval_ms)}, halts above ${rollout.failures_percent} % failed`;
}

const OPEN = new Set<Rollout["state"]>(["running", "paused", "halted"]);
const TONES: Record<Rollout["state"], Tone> = { running: "good", paused: "calm", halted: "bad", aborted: "bad", rolled_back: "calm", done: "good" };
const WORDS: Record<Rollout["state"], string> = { running: "running", paused: "paused", halted: "halted", aborted: "stopped", rolled_back: "rolled back", done: "done" };
