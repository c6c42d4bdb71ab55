// A statement's rows as they come: a plot of the columns that are numbers, and the latest as text.

import { useEffect, useState } from "react";

import { pause, read, reason } from "../ask";
import { Trouble } from "../parts";
import { RatePlot } from "../plot";
import { emptyRates } from "../rates";
import type { Rates } from "../rates";

interface Tail {
  rows: unknown[];
  next: number;
  missed: number;
}

interface Seen {
  /** The oldest first; each with when it came, in seconds. */
  rows: { at: number; row: unknown }[];
  missed: number;
  error: string | null;
}

export function LiveRows({ id }: { id: string }) {
  const seen = useRows(id);
  const columns = numeric(seen.rows.map(({ row }) => row));
  const latest = seen.rows.slice(-TEXTS_MAX).reverse();
  return (
    <section id="rows" aria-labelledby="rows-title">
      <h2 id="rows-title">Rows <small>{seen.missed > 0 ? `live; ${seen.missed} came too fast to be shown` : "live"}</small></h2>
      <Trouble text={seen.error} />
      {columns.length > 0 && <RatePlot rates={points(seen.rows, columns)} unit="value" lines={columns.map((column) => ({ key: column, label: column }))} />}
      {latest.length === 0 ? <p className="empty">No row yet.</p> : <pre tabIndex={0} aria-label="The latest rows">{latest.map(({ row }) => JSON.stringify(row)).join("\n")}</pre>}
    </section>
  );
}

/** Asks for the rows after the last ones that came; each answer waits for the next row. */
function useRows(id: string): Seen {
  const [seen, setSeen] = useState<Seen>({ rows: [], missed: 0, error: null });
  useEffect(() => {
    const abort = new AbortController();
    const path = `api/v1/statements/${encodeURIComponent(id)}/rows`;
    const follow = async () => {
      let next: number | null = null;
      while (!abort.signal.aborted) {
        if (document.hidden) {
          // Nobody looks; a browser has few connections to a server, and others need them.
          await pause(HIDDEN_MS);
          continue;
        }
        try {
          const query: string = next === null ? "wait_ms=0" : `after=${next}&wait_ms=10000`;
          const tail: Tail = await read<Tail>(`${path}?${query}`, abort.signal);
          next = tail.next;
          const at = performance.now() / 1000;
          const came = tail.rows.map((row) => ({ at, row }));
          setSeen((old) => ({ rows: [...old.rows, ...came].slice(-ROWS_MAX), missed: old.missed + tail.missed, error: null }));
          // A fast statement is looked at a few times a second.
          await pause(came.length > 0 ? 250 : 0);
        } catch (error) {
          if (abort.signal.aborted) {
            return;
          }
          setSeen((old) => ({ ...old, error: reason(error) }));
          await pause(2000);
        }
      }
    };
    void follow();
    return () => abort.abort();
  }, [id]);
  return seen;
}

/** The columns that hold numbers, the first few; a bare result counts as one. Instants, such as a window's
 * start, are as large as nothing else and would lay all other lines flat. */
function numeric(rows: unknown[]): string[] {
  const names = new Set<string>();
  const instants = new Set<string>();
  for (const row of rows) {
    for (const [name, value] of Object.entries(columnsOf(row))) {
      if (typeof value === "number") {
        names.add(name);
        if (value >= INSTANT_MS_MIN) {
          instants.add(name);
        }
      }
    }
  }
  return [...names].filter((name) => !instants.has(name)).slice(0, LINES_MAX);
}

function columnsOf(row: unknown): Record<string, unknown> {
  return typeof row === "object" && row !== null ? (row as Record<string, unknown>) : { value: row };
}

function points(rows: Seen["rows"], columns: string[]): Rates {
  const series = new Map(columns.map((column) => [column, rows.map(({ row }) => {
    const value = columnsOf(row)[column];
    return typeof value === "number" ? value : null;
  })]));
  return { ...emptyRates, times: rows.map(({ at }) => at), series };
}

/** Milliseconds since 1970: nobody tells of what was before 1980. */
const INSTANT_MS_MIN = 315_360_000_000;
const HIDDEN_MS = 1000;
const ROWS_MAX = 400;
const TEXTS_MAX = 20;
const LINES_MAX = 6;
