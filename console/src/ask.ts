// Asking the HTTP API: once, again and again while a page is open, and to change something.

import { useCallback, useEffect, useRef, useState } from "react";

/** What does not fit in a flow. */
export interface Problem {
  component: string;
  property: string | null;
  reason: string;
}

/** An answer that is an error, in the server's own words. */
export class Refusal extends Error {
  readonly status: number;
  readonly problems: Problem[];
  /** Where in a text the error is, both from 1; null where it is not in a text. */
  readonly line: number | null;
  readonly column: number | null;

  constructor(status: number, message: string, problems: Problem[], line: number | null = null, column: number | null = null) {
    super(message);
    this.status = status;
    this.problems = problems;
    this.line = line;
    this.column = column;
  }
}

export async function read<T>(path: string, signal?: AbortSignal): Promise<T> {
  const response = await call(path, { headers: { Accept: "application/json" }, ...(signal && { signal }) });
  return answer<T>(response);
}

/** Sends a text, a file's bytes or, as JSON, anything else. */
export async function send<T>(method: string, path: string, body?: unknown, signal?: AbortSignal): Promise<T> {
  const isPlain = typeof body === "string" || body instanceof Blob;
  const kind = body instanceof Blob ? "application/octet-stream" : isPlain ? "text/plain" : "application/json";
  const response = await call(path, {
    method,
    headers: { Accept: "application/json", ...(body !== undefined && { "Content-Type": kind }) },
    ...(body !== undefined && { body: isPlain ? body : JSON.stringify(body) }),
    ...(signal && { signal }),
  });
  return answer<T>(response);
}

export function pause(ms: number): Promise<void> {
  return new Promise((resolve) => window.setTimeout(resolve, ms));
}

/** What a page knows of an answer that it asks for again and again. */
export interface Asked<T> {
  value: T | null;
  error: string | null;
  /** Whether it was refused because nobody is logged in. */
  needs_login: boolean;
  /** When it came, by the page's own clock. */
  at_ms: number;
  again: () => void;
}

type Known<T> = Omit<Asked<T>, "again"> & { path: string };

/** Asks now and every `every_ms` while the page is visible, one request at a time; at once when it is seen again. */
export function useAsked<T>(path: string, every_ms: number): Asked<T> {
  const [known, setKnown] = useState<Known<T>>({ path, value: null, error: null, needs_login: false, at_ms: 0 });
  const wake = useRef<() => void>(() => undefined);
  useEffect(() => {
    const abort = new AbortController();
    let timer = 0;
    // Of two that are under way, what the later one answers counts.
    let turn = 0;
    const ask = async () => {
      window.clearTimeout(timer);
      if (document.hidden) {
        return;
      }
      turn += 1;
      const mine = turn;
      const began = performance.now();
      const tell = (next: (old: Known<T>) => Known<T>) => mine === turn && !abort.signal.aborted && setKnown(next);
      try {
        const value = await read<T>(path, abort.signal);
        tell(() => ({ path, value, error: null, needs_login: false, at_ms: performance.now() }));
      } catch (error) {
        const needs_login = error instanceof Refusal && error.status === 401;
        tell((old) => ({ path, value: old.path === path ? old.value : null, error: reason(error), needs_login, at_ms: old.at_ms }));
      }
      if (mine === turn && !abort.signal.aborted) {
        timer = window.setTimeout(() => void ask(), pauseAfter(began, every_ms));
      }
    };
    const look = () => void ask();
    wake.current = look;
    document.addEventListener("visibilitychange", look);
    look();
    return () => {
      abort.abort();
      window.clearTimeout(timer);
      document.removeEventListener("visibilitychange", look);
    };
  }, [path, every_ms]);
  const again = useCallback(() => wake.current(), []);
  // What is known of another page's path is not this one's.
  const isMine = known.path === path;
  return { value: isMine ? known.value : null, error: isMine ? known.error : null, needs_login: isMine && known.needs_login, at_ms: known.at_ms, again };
}

/** How long to wait for the next question: one whose answer takes long, such as all of very many topics, is asked seldom. */
export function pauseAfter(began_ms: number, every_ms: number): number {
  return Math.max(every_ms, PAUSES * (performance.now() - began_ms));
}

/** Changes that somebody asks for: one at a time, and what went wrong with the last one. */
export interface Acting {
  /** True once it is done; false where it was refused, or another one is under way. */
  act: (what: () => Promise<unknown>) => Promise<boolean>;
  /** One is under way: nothing else can be asked for. */
  busy: boolean;
  trouble: string | null;
}

/** Has changes made; `again` shows what is so after each of them. */
export function useActing(again: () => void): Acting {
  const [trouble, setTrouble] = useState<string | null>(null);
  const [busy, setBusy] = useState(false);
  // What is drawn as busy is too late for the second of two quick clicks.
  const isUnderWay = useRef(false);
  const act = async (what: () => Promise<unknown>) => {
    if (isUnderWay.current) {
      return false;
    }
    isUnderWay.current = true;
    setBusy(true);
    const told = await what().then(() => null, reason);
    isUnderWay.current = false;
    setBusy(false);
    setTrouble(told);
    again();
    return told === null;
  };
  return { act, busy, trouble };
}

export function reason(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

/** Calls the server; where nothing answers, browsers say so in words of their own. */
async function call(path: string, init: RequestInit): Promise<Response> {
  try {
    return await fetch(path, init);
  } catch (error) {
    throw error instanceof TypeError ? new Error("the server does not answer: it was stopped, or the way to it is broken") : error;
  }
}

async function answer<T>(response: Response): Promise<T> {
  if (response.ok) {
    // Removing answers nothing.
    return (response.status === 204 ? null : await response.json()) as T;
  }
  const body = (await response.json().catch(() => null)) as { message?: string; problems?: Problem[]; line?: number; column?: number } | null;
  const known = WORDS[response.status] ?? `the server answered ${response.status}`;
  throw new Refusal(response.status, body?.message ?? known, body?.problems ?? [], body?.line ?? null, body?.column ?? null);
}

/** Pauses as long as an answer took. */
const PAUSES = 4;

/** What an answer without words of its own means. */
const WORDS: Record<number, string> = {
  401: "log in to see this",
  404: "the server has nothing of this kind: it runs without the role that this is about",
};
