// The last few minutes of figures that a page sees while it is open, as the plot draws them.

import { useRef } from "react";

import type { Rates } from "./rates";
import { emptyRates } from "./rates";

/** Adds the figures of each answer to those before; `at_ms` tells answers apart. */
export function useHistory(at_ms: number, figures: Record<string, number>): Rates {
  const known = useRef<Rates>(emptyRates);
  if (at_ms !== 0 && at_ms !== known.current.at_ms) {
    known.current = advance(known.current, at_ms, figures);
  }
  return known.current;
}

/** How fast a total grows between answers, as a history. */
export function useRate(at_ms: number, name: string, total: number | null): Rates {
  const last = useRef<{ at_ms: number; total: number } | null>(null);
  const known = useRef<Rates>(emptyRates);
  if (total !== null && at_ms !== 0 && at_ms !== last.current?.at_ms) {
    const before = last.current;
    last.current = { at_ms, total };
    if (before !== null) {
      const grown = Math.max(0, total - before.total);
      known.current = advance(known.current, at_ms, { [name]: grown / ((at_ms - before.at_ms) / 1000) });
    }
  }
  return known.current;
}

function advance(before: Rates, at_ms: number, figures: Record<string, number>): Rates {
  const drop = Math.max(0, before.times.length + 1 - POINTS_MAX);
  const times = [...before.times.slice(drop), at_ms / 1000];
  const series = new Map<string, (number | null)[]>();
  for (const [name, value] of Object.entries(figures)) {
    const past = before.series.get(name) ?? new Array<null>(before.times.length).fill(null);
    series.set(name, [...past.slice(drop), value]);
  }
  return { times, series, totals: new Map(), at_ms };
}

const POINTS_MAX = 180;
