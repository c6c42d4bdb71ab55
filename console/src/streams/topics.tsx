// The event store's topics: any of them by a part of its name, and one with its partitions and settings.

import { useAsked } from "../ask";
import type { Topic } from "../api";
import { bytes, count, plural, rate } from "../format";
import { useGrowth, useRate } from "../history";
import { Listing } from "../listing";
import type { Column } from "../listing";
import { firstOf, Section, Sub, sizeOf, Trouble } from "../parts";
import { RatePlot } from "../plot";
import { address } from "../route";
import { GroupState } from "./groups";
import { Records } from "./records";
import { Settings } from "./settings";
import type { TopicDetail, TopicGroup } from "./types";

export function TopicsPage({ query }: { query: URLSearchParams }) {
  const asked = useAsked<{ topics: Topic[] }>("api/v1/topics", 3000);
  const topics = asked.value?.topics ?? [];
  const records = useGrowth(asked.at_ms, () => new Map(topics.map((one) => [one.name, one.records_in_total])));
  const columns: [Column<Topic>, ...Column<Topic>[]] = [
    { name: "topic", title: "Topic", value: (one) => one.name, cell: (one) => <TopicName of={one} /> },
    { name: "partitions", title: "Partitions", is_number: true, value: (one) => one.partitions },
    { name: "rate", title: "Records/s", is_number: true, value: (one) => records.get(one.name) ?? null, cell: (one) => rate(records.get(one.name) ?? null) },
    { name: "records", title: "Records in", is_number: true, value: (one) => one.records_in_total },
    { name: "stored", title: "Stored", is_number: true, value: (one) => one.bytes_stored, cell: (one) => bytes(one.bytes_stored) },
    { name: "durability", title: "Durability", value: (one) => one.durability },
  ];
  return (
    <main>
      <Trouble text={asked.error} />
      <Listing
        id="all-topics"
        title="Topics"
        empty="No topic yet; the first producer makes one, or `thalweg topics create`."
        size={sizeOf(asked, (value) => value.topics.length)}
        items={topics}
        columns={columns}
        key_of={(one) => one.name}
        texts={(one) => [one.name, one.wire_name]}
        path={["topics"]}
        query={query}
      />
    </main>
  );
}

/** A topic's name as the way to its page; that of a stream path with what Kafka's clients call it. */
export function TopicName({ of }: { of: Topic }) {
  return <><a href={address(["topics", of.name])}>{of.name}</a>{of.wire_name !== of.name && <Sub>{of.wire_name}</Sub>}</>;
}

export function TopicPage({ name, query }: { name: string; query: URLSearchParams }) {
  const asked = useAsked<TopicDetail>(`api/v1/topics/${encodeURIComponent(name)}`, 2000);
  const topic = asked.value;
  const rates = useRate(asked.at_ms, name, topic?.records_in_total ?? null);
  return (
    <main>
      <p><a href="#/topics">All topics</a>, <a href="#/groups">consumer groups</a></p>
      <h2 className="title">{name}</h2>
      <Trouble text={asked.error} />
      {topic === null ? asked.error === null && <p className="empty">Reading…</p> : (
        <>
          <div className="plots">
            <Summary of={topic} />
            <figure>
              <figcaption>Records into it</figcaption>
              <RatePlot rates={rates} unit="records/s" lines={[{ key: name, label: "records/s" }]} />
            </figure>
          </div>
          <Readers topic={name} />
          <Records of={topic} query={query} />
          <Partitions of={topic} />
          {topic.config !== undefined && <Settings settings={topic.config} />}
        </>
      )}
    </main>
  );
}

function Summary({ of }: { of: TopicDetail }) {
  const held = of.offsets.reduce((sum, one) => sum + Math.max(0, one.end - one.start), 0);
  const books: [string, string][] = [
    ["For Kafka", of.wire_name],
    ["Partitions", count(of.partitions)],
    // Of transactions and of compaction there are offsets without a record.
    ["Offsets held", count(held)],
    ["Records in", count(of.records_in_total)],
    ["Bytes in", bytes(of.bytes_in_total)],
    ["Stored", bytes(of.bytes_stored)],
    ["Durability", of.durability],
  ];
  return (
    <section id="summary" aria-labelledby="summary-title">
      <h2 id="summary-title">Summary</h2>
      <dl>{books.map(([name, value]) => <div key={name}><dt>{name}</dt><dd>{value}</dd></div>)}</dl>
    </section>
  );
}

/** The groups that read it, who is furthest behind first. */
function Readers({ topic }: { topic: string }) {
  const asked = useAsked<{ groups: TopicGroup[]; left_out: number }>(`api/v1/topics/${encodeURIComponent(topic)}/groups`, 5000);
  const groups = [...(asked.value?.groups ?? [])].sort((a, b) => (b.lag ?? -1) - (a.lag ?? -1));
  const { shown, note } = firstOf(groups, READERS_SHOWN, (most) => `the ${most} furthest behind`);
  const left_out = asked.value?.left_out ?? 0;
  return (
    <>
      <Trouble text={asked.error} />
      <Section id="readers" title="Read by" empty="No group reads it: one does with its first member, or the first offset that it commits." size={sizeOf(asked, () => shown.length)} note={left_out === 0 ? note : `${note}; ${plural(left_out, "group")} not looked at`}>
        <thead>
          <tr><th scope="col">Group</th><th scope="col">State</th><th scope="col" className="number">Lag</th><th scope="col" className="number">Partitions</th><th scope="col" className="number">Members</th></tr>
        </thead>
        <tbody>
          {shown.map((one) => (
            <tr key={one.group} data-id={one.group}>
              <th scope="row"><a href={address(["groups", one.group])}>{one.group}</a></th>
              <td><GroupState of={one.state} /></td>
              <td className="number">{one.lag === null ? "–" : count(one.lag)}</td>
              <td className="number">{count(one.partitions)}</td>
              <td className="number">{count(one.members)}</td>
            </tr>
          ))}
        </tbody>
      </Section>
    </>
  );
}

function Partitions({ of }: { of: TopicDetail }) {
  const { shown, note } = firstOf(of.offsets, PARTITIONS_SHOWN);
  return (
    <Section id="partitions" title="Partitions" empty="It has none." size={shown.length} note={note}>
      <thead>
        <tr><th scope="col">Partition</th><th scope="col" className="number">First offset</th><th scope="col" className="number">Next offset</th><th scope="col" className="number">Offsets held</th></tr>
      </thead>
      <tbody>
        {shown.map((one) => (
          <tr key={one.partition} data-id={one.partition}>
            <th scope="row">{one.partition}</th>
            <td className="number">{count(one.start)}</td>
            <td className="number">{count(one.end)}</td>
            <td className="number">{count(Math.max(0, one.end - one.start))}</td>
          </tr>
        ))}
      </tbody>
    </Section>
  );
}

const READERS_SHOWN = 100;
const PARTITIONS_SHOWN = 1000;
