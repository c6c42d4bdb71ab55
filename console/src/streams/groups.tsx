// Consumer groups: all of them, and one with how far it is behind in each partition.

import { useAsked } from "../ask";
import { count, plural } from "../format";
import { useHistory } from "../history";
import { Listing } from "../listing";
import type { Column } from "../listing";
import { Badge, firstOf, Section, Sub, sizeOf, Trouble } from "../parts";
import type { Tone } from "../parts";
import { RatePlot } from "../plot";
import { address } from "../route";
import { ResetOffsets } from "./reset";
import { Settings } from "./settings";
import type { Group, GroupDetail, GroupOffset } from "./types";

export function GroupsPage({ query }: { query: URLSearchParams }) {
  const asked = useAsked<{ groups: Group[] }>("api/v1/groups", 3000);
  const columns: [Column<Group>, ...Column<Group>[]] = [
    { name: "group", title: "Group", value: (one) => one.group, cell: (one) => <a href={address(["groups", one.group])}>{one.group}</a> },
    { name: "state", title: "State", value: (one) => one.state, cell: (one) => <GroupState of={one.state} /> },
    { name: "protocol", title: "Protocol type", value: (one) => one.protocol_type },
    { name: "members", title: "Members", is_number: true, value: (one) => one.members.length },
  ];
  return (
    <main>
      <Trouble text={asked.error} />
      <Listing
        id="all-groups"
        title="Consumer groups"
        empty="No group yet: one appears with its first member, or with the first offset that is committed."
        size={sizeOf(asked, (value) => value.groups.length)}
        items={asked.value?.groups ?? []}
        columns={columns}
        key_of={(one) => one.group}
        texts={(one) => [one.group, ...one.members.map((member) => member.client_id)]}
        path={["groups"]}
        query={query}
      />
    </main>
  );
}

export function GroupPage({ name }: { name: string }) {
  const asked = useAsked<GroupDetail>(`api/v1/groups/${encodeURIComponent(name)}`, 2000);
  const group = asked.value;
  const lag = useHistory(asked.at_ms, group === null ? {} : { [name]: group.lag_total });
  return (
    <main>
      <p><a href="#/groups">All groups</a></p>
      <h2 className="title">{name} {group !== null && <GroupState of={group.state} />}</h2>
      <Trouble text={asked.error} />
      {group === null ? asked.error === null && <p className="empty">Reading…</p> : (
        <>
          <div className="plots">
            <Summary of={group} />
            <figure>
              <figcaption>Records that it has not read</figcaption>
              <RatePlot rates={lag} unit="records" lines={[{ key: name, label: "lag" }]} />
            </figure>
          </div>
          <Offsets offsets={group.offsets} />
          <Members of={group} />
          <ResetOffsets of={group} again={asked.again} />
          {group.config !== undefined && <Settings settings={group.config} />}
        </>
      )}
    </main>
  );
}

function Summary({ of }: { of: GroupDetail }) {
  const books: [string, string][] = [
    ["Lag", plural(of.lag_total, "record")],
    ["Members", count(of.members.length)],
    ["Protocol", of.kind.toLowerCase()],
    ["Protocol type", of.protocol_type],
    ["Assignor", of.assignor === null || of.assignor === "" ? "–" : of.assignor],
  ];
  return (
    <section id="summary" aria-labelledby="summary-title">
      <h2 id="summary-title">Summary</h2>
      <dl>{books.map(([name, value]) => <div key={name}><dt>{name}</dt><dd>{value === "" ? "–" : value}</dd></div>)}</dl>
    </section>
  );
}

function Offsets({ offsets }: { offsets: GroupOffset[] }) {
  // Who is furthest behind is what is looked for.
  const ordered = [...offsets].sort((a, b) => (b.lag ?? -1) - (a.lag ?? -1));
  const { shown, note } = firstOf(ordered, OFFSETS_SHOWN, (most) => `the ${most} furthest behind`);
  return (
    <Section id="offsets" title="Partitions" empty="It has no partition and committed nothing." size={shown.length} note={note}>
      <thead>
        <tr><th scope="col">Topic</th><th scope="col" className="number">Partition</th><th scope="col" className="number">Lag</th><th scope="col" className="number">Its offset</th><th scope="col" className="number">Next offset</th><th scope="col">Read by</th></tr>
      </thead>
      <tbody>
        {shown.map((one) => (
          <tr key={`${one.topic} ${one.partition}`} data-id={`${one.topic} ${one.partition}`}>
            <th scope="row"><a href={address(["topics", one.topic])}>{one.topic}</a></th>
            <td className="number">{one.partition}</td>
            <td className="number">{one.lag === null ? "–" : count(one.lag)}</td>
            <td className="number">{one.current === null ? "none yet" : count(one.current)}</td>
            <td className="number">{count(one.end)}</td>
            <td>{one.client_id ?? "nobody"}<Sub>{one.host}</Sub></td>
          </tr>
        ))}
      </tbody>
    </Section>
  );
}

function Members({ of }: { of: GroupDetail }) {
  const { shown, note } = firstOf(of.members, MEMBERS_SHOWN);
  return (
    <Section id="members" title="Members" empty="Nobody reads by it now." size={shown.length} note={note}>
      <thead>
        <tr><th scope="col">Client</th><th scope="col">Host</th><th scope="col" className="number">Partitions</th><th scope="col">Member</th></tr>
      </thead>
      <tbody>
        {shown.map((one) => (
          <tr key={one.member_id}>
            <th scope="row">{one.client_id}<Sub>{one.instance_id}</Sub></th>
            <td>{one.host}</td>
            <td className="number">{count(one.partitions.length)}</td>
            <td>{one.member_id}</td>
          </tr>
        ))}
      </tbody>
    </Section>
  );
}

export function GroupState({ of }: { of: string }) {
  const tones: Record<string, Tone> = { stable: "good", dead: "bad" };
  return <Badge kind={tones[of.toLowerCase()] ?? "calm"}>{of}</Badge>;
}

const OFFSETS_SHOWN = 1000;
const MEMBERS_SHOWN = 1000;
