// A plot of rates over the last two minutes, one line per name.

import { useEffect, useRef } from "react";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";

import { figure } from "./format";
import type { CounterKey, Rates } from "./rates";

export interface Line {
  key: CounterKey;
  label: string;
}

export function RatePlot({ rates, lines, unit }: { rates: Rates; lines: Line[]; unit: string }) {
  const host = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const names = lines.map((line) => line.key).join("\n");

  useEffect(() => {
    if (host.current === null) {
      return;
    }
    const created = new uPlot(options(host.current.clientWidth, lines, unit), [[]], host.current);
    plot.current = created;
    const observer = new ResizeObserver(([entry]) => {
      if (entry !== undefined) {
        created.setSize({ width: Math.floor(entry.contentRect.width), height: HEIGHT_PX });
      }
    });
    observer.observe(host.current);
    return () => {
      observer.disconnect();
      created.destroy();
    };
    // A new plot only when its lines change; new points go in by setData below.
  }, [names, unit]);

  useEffect(() => {
    const newest = rates.times.at(-1) ?? 0;
    const times = rates.times.map((time) => time - newest);
    const series = lines.map(
      (line) => rates.series.get(line.key) ?? new Array<null>(times.length).fill(null),
    );
    plot.current?.setData([times, ...series]);
  }, [rates, names]);

  return <div className="plot" ref={host} />;
}

function options(width: number, lines: Line[], unit: string): uPlot.Options {
  // Asked for at each drawing: the page may turn dark while it is open.
  const color = (name: string) => () => getComputedStyle(document.documentElement).getPropertyValue(name);
  const axis = { stroke: color("--muted"), grid: { stroke: color("--rule"), width: 1 }, ticks: { show: false } };
  return {
    width,
    height: HEIGHT_PX,
    cursor: { y: false },
    scales: { x: { time: false, range: (_, oldest) => [Math.min(oldest, SECONDS_LEAST), 0] }, y: { range: (_, least, most) => [Math.min(0, (least ?? 0) * 1.1), Math.max((least ?? 0) < 0 ? 0 : 1, (most ?? 0) * 1.1)] } },
    axes: [
      { ...axis, values: (_, ticks) => ticks.map((tick) => `${tick} s`) },
      { ...axis, size: (_, ticks) => Math.max(AXIS_PX, ...(ticks ?? []).map((tick) => tick.length * DIGIT_PX + 12)), label: unit, labelSize: 18 },
    ],
    series: [
      { label: "before now", value: (_, v) => (v === null ? "–" : `${Math.round(v)} s`) },
      ...lines.map((line, index) => ({
        label: line.label,
        stroke: COLORS[index % COLORS.length] ?? "#0a7ea4",
        width: 2,
        // A line of few points is seen by them: one alone has no line.
        points: { show: (plot: uPlot) => plot.data[0].length <= POINTS_SEEN },
        value: (_: uPlot, v: number | null) => (v === null ? "–" : figure(v)),
      })),
    ],
  };
}

const HEIGHT_PX = 190;
/** The axis is as wide as its longest number. */
const AXIS_PX = 42;
const DIGIT_PX = 7.5;
const POINTS_SEEN = 20;
/** A page just opened shows its first seconds large instead of a sliver at the edge. */
const SECONDS_LEAST = -10;
const COLORS = ["#0a7ea4", "#d97706", "#16a34a", "#9333ea", "#dc2626", "#64748b", "#0891b2", "#ca8a04"];
