// Rates from counters: the API gives totals, the page wants "per second, now".

import type { Snapshot } from "./api";

/** Names a counter across snapshots. */
export type CounterKey = string;

/** A short history of rates per counter, one point a poll. */
export interface Rates {
  /** Seconds before now, oldest first, one per point. */
  readonly times: number[];
  /** Per counter, the rate at each time; null where the counter was not there yet. */
  readonly series: Map<CounterKey, (number | null)[]>;
  readonly totals: Map<CounterKey, number>;
  readonly at_ms: number;
}

export const emptyRates: Rates = { times: [], series: new Map(), totals: new Map(), at_ms: 0 };

/** Adds one snapshot's counters to the history. A counter that fell (a restart) starts anew. */
export function advance(before: Rates, snapshot: Snapshot): Rates {
  const totals = counters(snapshot);
  if (before.at_ms === 0) {
    return { ...emptyRates, totals, at_ms: snapshot.at_ms };
  }
  const seconds = (snapshot.at_ms - before.at_ms) / 1000;
  const keep = Math.max(0, before.times.length + 1 - POINTS_MAX);
  const times = [...before.times.slice(keep), snapshot.at_ms / 1000];
  const series = new Map<CounterKey, (number | null)[]>();
  for (const [key, total] of totals) {
    const old = before.totals.get(key);
    const rate = old === undefined || total < old ? null : (total - old) / seconds;
    const past = before.series.get(key) ?? new Array<null>(before.times.length).fill(null);
    series.set(key, [...past.slice(keep), rate]);
  }
  return { times, series, totals, at_ms: snapshot.at_ms };
}

/** The newest rate of a counter, averaged over the last few points so that it can be read. */
export function current(rates: Rates, key: CounterKey): number | null {
  const points = (rates.series.get(key) ?? []).slice(-SMOOTHED_POINTS);
  const known = points.filter((point): point is number => point !== null);
  return known.length === 0 ? null : known.reduce((a, b) => a + b, 0) / known.length;
}

export const topicRecords = (name: string): CounterKey => `topic.records/${name}`;
export const topicBytes = (name: string): CounterKey => `topic.bytes/${name}`;
export const statementIn = (id: string): CounterKey => `statement.in/${id}`;
export const statementOut = (id: string): CounterKey => `statement.out/${id}`;
export const jobRecords = (id: string): CounterKey => `job.records/${id}`;
export const mqttIn: CounterKey = "mqtt.in";
export const mqttOut: CounterKey = "mqtt.out";
export const heartbeats: CounterKey = "fleet.heartbeats";
export const allRecords: CounterKey = "topics.records";
export const allStatementsIn: CounterKey = "statements.in";

function counters(snapshot: Snapshot): Map<CounterKey, number> {
  const totals = new Map<CounterKey, number>();
  for (const topic of snapshot.topics.shown) {
    totals.set(topicRecords(topic.name), topic.records_in_total);
    if (topic.bytes_in_total !== null) totals.set(topicBytes(topic.name), topic.bytes_in_total);
  }
  for (const statement of snapshot.statements.shown) {
    totals.set(statementIn(statement.id), statement.received_total);
    totals.set(statementOut(statement.id), statement.emitted_total);
  }
  for (const job of snapshot.jobs) {
    totals.set(jobRecords(job.id), job.records_done);
  }
  totals.set(allRecords, snapshot.topics.total);
  totals.set(allStatementsIn, snapshot.statements.total);
  if (snapshot.fleet !== null) {
    totals.set(heartbeats, snapshot.fleet.heartbeats_total);
  }
  if (snapshot.status.mqtt !== null) {
    totals.set(mqttIn, snapshot.status.mqtt.messages_received_total);
    totals.set(mqttOut, snapshot.status.mqtt.messages_sent_total);
  }
  return totals;
}

const POINTS_MAX = 120;
const SMOOTHED_POINTS = 3;
