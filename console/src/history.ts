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
  return useRates(at_ms, total === null ? null : { [name]: total });
}

/** How fast each of several totals grows between answers, as a history. */
export function useRates(at_ms: number, totals: Record<string, number> | null): Rates {
  const last = useRef<{ at_ms: number; totals: Record<string, number> } | null>(null);
  const known = useRef<Rates>(emptyRates);
  if (totals !== null && at_ms !== 0 && at_ms !== last.current?.at_ms) {
    const before = last.current;
    last.current = { at_ms, totals };
    if (before !== null) {
      const seconds = (at_ms - before.at_ms) / 1000;
      const grown = Object.entries(totals).map(([name, total]) => [name, Math.max(0, total - (before.totals[name] ?? total)) / seconds]);
      known.current = advance(known.current, at_ms, Object.fromEntries(grown) as Record<string, number>);
    }
  }
  return known.current;
}

/** How fast each of very many totals grew between the last two answers: the latest rates, without a history. */
export function useGrowth(at_ms: number, totals: () => Map<string, number>): Map<string, number> {
  const last = useRef<{ at_ms: number; totals: Map<string, number>; rates: Map<string, number> } | null>(null);
  if (at_ms !== 0 && at_ms !== last.current?.at_ms) {
    const before = last.current;
    const found = totals();
    const rates = new Map<string, number>();
    for (const [name, total] of found) {
      const old = before?.totals.get(name);
      if (before !== null && old !== undefined) {
        rates.set(name, Math.max(0, total - old) / ((at_ms - before.at_ms) / 1000));
      }
    }
    last.current = { at_ms, totals: found, rates };
  }
  return last.current?.rates ?? new Map();
}

/** Each series as a part of the sum of all, in percent; null where nothing grew. */
export function shares(rates: Rates): Rates {
  const sums = rates.times.map((_, at) => [...rates.series.values()].reduce((sum, points) => sum + (points[at] ?? 0), 0));
  const part = (point: number | null, at: number) => {
    const sum = sums[at] ?? 0;
    return point === null || sum === 0 ? null : (point / sum) * 100;
  };
  return { ...rates, series: new Map([...rates.series].map(([name, points]) => [name, points.map(part)])) };
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
