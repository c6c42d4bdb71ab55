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
  const response = await fetch(path, { headers: { Accept: "application/json" }, ...(signal && { signal }) });
  return answer<T>(response);
}

/** Sends a text, a file's bytes or, as JSON, anything else. */
export async function send<T>(method: string, path: string, body?: unknown, signal?: AbortSignal): Promise<T> {
  const isPlain = typeof body === "string" || body instanceof Blob;
  const kind = body instanceof Blob ? "application/octet-stream" : isPlain ? "text/plain" : "application/json";
  const response = await fetch(path, {
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

/** Asks now and every `every_ms` while the page is visible, one request at a time. */
export function useAsked<T>(path: string, every_ms: number): Asked<T> {
  const [known, setKnown] = useState<Known<T>>({ path, value: null, error: null, needs_login: false, at_ms: 0 });
  const wake = useRef<() => void>(() => undefined);
  useEffect(() => {
    const abort = new AbortController();
    let timer = 0;
    const ask = async () => {
      window.clearTimeout(timer);
      if (!document.hidden) {
        try {
          const value = await read<T>(path, abort.signal);
          setKnown({ path, value, error: null, needs_login: false, at_ms: performance.now() });
        } catch (error) {
          if (abort.signal.aborted) {
            return;
          }
          const needs_login = error instanceof Refusal && error.status === 401;
          setKnown((old) => ({ path, value: old.path === path ? old.value : null, error: reason(error), needs_login, at_ms: old.at_ms }));
        }
      }
      timer = window.setTimeout(() => void ask(), every_ms);
    };
    wake.current = () => void ask();
    void ask();
    return () => {
      abort.abort();
      window.clearTimeout(timer);
    };
  }, [path, every_ms]);
  const again = useCallback(() => wake.current(), []);
  // What is known of another page's path is not this one's.
  const isMine = known.path === path;
  return { value: isMine ? known.value : null, error: isMine ? known.error : null, needs_login: isMine && known.needs_login, at_ms: known.at_ms, again };
}

export function reason(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

async function answer<T>(response: Response): Promise<T> {
  if (response.ok) {
    // Removing answers nothing.
    return (response.status === 204 ? null : await response.json()) as T;
  }
  const body = (await response.json().catch(() => null)) as { message?: string; problems?: Problem[]; line?: number; column?: number } | null;
  const known = response.status === 401 ? "log in to see this" : `the server answered ${response.status}`;
  throw new Refusal(response.status, body?.message ?? known, body?.problems ?? [], body?.line ?? null, body?.column ?? null);
}
