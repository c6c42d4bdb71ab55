// Small parts that every page is made of.

import type { ReactNode } from "react";

import type { Asked } from "./ask";
import { now } from "./clock";
import { age, count, local, utc } from "./format";

export type Tone = "good" | "bad" | "calm";

/** How many there are, or why that is not known. */
export type Size = number | "reading" | "unknown";

/** How many of a list there are, as far as it was answered. */
export function sizeOf<T>(asked: Asked<T>, items: (value: T) => number): Size {
  if (asked.value !== null) {
    return items(asked.value);
  }
  return asked.error === null ? "reading" : "unknown";
}

/** The first few of a list, with how many those are of how many; `which` says what is special of them. */
export function firstOf<T>(all: T[], most: number, which = (shown: string) => `the first ${shown}`): { shown: T[]; note: string } {
  const shown = all.slice(0, most);
  const note = shown.length === all.length ? count(all.length) : `${which(count(shown.length))} of ${count(all.length)}`;
  return { shown, note };
}

interface SectionProps {
  id: string;
  title: string;
  /** What is said where there is none. */
  empty: string;
  size: Size;
  note?: ReactNode;
  /** What stands above the table, whether or not there are rows. */
  above?: ReactNode;
  children: ReactNode;
}

export function Section({ id, title, empty, size, note, above, children }: SectionProps) {
  const isKnown = typeof size === "number";
  return (
    <section id={id} aria-labelledby={`${id}-title`}>
      <h2 id={`${id}-title`}>{title} {isKnown && <small>{note ?? count(size)}</small>}</h2>
      {above}
      {isKnown && size > 0 ? <div className="scroll"><table>{children}</table></div> : <p className="empty">{isKnown ? empty : UNKNOWN[size]}</p>}
    </section>
  );
}

export function Badge({ kind, children }: { kind: Tone; children: ReactNode }) {
  return <span className={`badge ${kind}`}>{children}</span>;
}

/** How long ago something was; when exactly is told on hover. */
export function Ago({ at_ms, now_ms = now() }: { at_ms: number; now_ms?: number }) {
  return <time title={`${local(at_ms)}, ${utc(at_ms)}`}>{age(now_ms - at_ms)} ago</time>;
}

/** When something was, in the reader's zone and to the millisecond; in UTC on hover. */
export function When({ at_ms }: { at_ms: number }) {
  return <time title={utc(at_ms, true)}>{local(at_ms, true)}</time>;
}

export function Sub({ children }: { children: ReactNode }) {
  return children === null || children === undefined ? null : <div className="sub">{children}</div>;
}

export interface Share {
  label: string;
  value: number;
  tone: Tone | "river";
  /** Where the ones that are counted are listed. */
  href?: string;
}

/** Parts of a whole as one bar, with their numbers below it. */
export function Shares({ label, parts }: { label: string; parts: Share[] }) {
  const whole = Math.max(1, parts.reduce((sum, part) => sum + part.value, 0));
  const told = parts.map((part) => `${part.label} ${part.value}`).join(", ");
  return (
    <div className="shares">
      <div className="bar" role="img" aria-label={`${label}: ${told}`}>
        {parts.map((part) => <span key={part.label} className={part.tone} style={{ width: `${(part.value / whole) * 100}%` }} />)}
      </div>
      <ul>
        {parts.map((part) => (
          <li key={part.label}>
            <i className={`dot ${part.tone}`} aria-hidden="true" />
            {part.href === undefined ? part.label : <a href={part.href}>{part.label}</a>} <b>{count(part.value)}</b>
          </li>
        ))}
      </ul>
    </div>
  );
}

/** How much of a bound is used; without a bound, the number alone. */
export function Fill({ value, max, text }: { value: number; max: number | null; text: string }) {
  return (
    <>
      {text}
      {max !== null && max > 0 && <progress value={Math.min(value, max)} max={max} aria-label={`${Math.round((value / max) * 100)} % used`} />}
    </>
  );
}

export function Choice(props: { label: string; value: string; options: [string, string][]; onChange: (value: string) => void }) {
  return (
    <label>
      {props.label}
      <select value={props.value} onChange={(event) => props.onChange(event.currentTarget.value)}>
        {props.options.map(([value, text]) => <option key={value} value={value}>{text}</option>)}
      </select>
    </label>
  );
}

export function Trouble({ text }: { text: string | null }) {
  return text === null ? null : <p className="trouble" role="alert">{text}</p>;
}

export const FLOW_TONES = { none: "calm", pending: "calm", deployed: "good", failed: "bad" } as const;
const UNKNOWN = { reading: "Reading…", unknown: "Not known, since the server did not say." } as const;
