// The MQTT server's clients, with what waits for them, and what was refused lately.

import { useAsked } from "./ask";
import { bytes } from "./format";
import { Listing } from "./listing";
import type { Column } from "./listing";
import { Ago, Badge, Section, Sub, sizeOf, Trouble } from "./parts";

interface Client {
  client_id: string;
  user: string | null;
  connected: boolean;
  /** Its session is kept when it goes. */
  persistent: boolean;
  subscriptions: number;
  queued: number;
  queued_bytes: number;
  inflight: number;
  sent_total: number;
  dropped_total: number;
}

interface Refusal {
  at_ms: number;
  client_id: string;
  user: string;
  host: string;
  what: string;
  topic: string;
  reason: string;
}

export function MqttPage({ query }: { query: URLSearchParams }) {
  const clients = useAsked<{ clients: Client[]; next: string | null }>(`api/v1/mqtt/clients?limit=${CLIENTS_ASKED}`, 2000);
  const refusals = useAsked<{ refusals: Refusal[] }>(`api/v1/mqtt/refusals?limit=${REFUSALS_SHOWN}`, 5000);
  const known = clients.value?.clients ?? [];
  return (
    <main>
      <Trouble text={clients.error ?? refusals.error} />
      {clients.value !== null && clients.value.next !== null && <p className="empty">There are more clients than these: `thalweg mqtt clients` lists all of them.</p>}
      <Listing
        id="clients"
        title="MQTT clients"
        empty="No client and no session: try `thalweg mqtt subscribe '#'`."
        size={sizeOf(clients, (value) => value.clients.length)}
        items={known}
        columns={COLUMNS}
        key_of={(one) => one.client_id}
        texts={(one) => [one.client_id, one.user ?? ""]}
        path={["mqtt"]}
        query={query}
      />
      <Section id="refusals" title="Refused lately" empty="Nothing was refused." size={sizeOf(refusals, (value) => value.refusals.length)}>
        <thead>
          <tr><th scope="col">When</th><th scope="col">What</th><th scope="col">Client</th><th scope="col">User</th><th scope="col">Host</th><th scope="col">Topic</th></tr>
        </thead>
        <tbody>
          {refusals.value?.refusals.map((one, at) => (
            <tr key={at}>
              <td><Ago at_ms={one.at_ms} /></td>
              <th scope="row">{one.what}<Sub>{one.reason}</Sub></th>
              <td>{one.client_id}</td>
              <td>{one.user === "" ? "–" : one.user}</td>
              <td>{one.host}</td>
              <td>{one.topic === "" ? "–" : one.topic}</td>
            </tr>
          ))}
        </tbody>
      </Section>
    </main>
  );
}

const COLUMNS: [Column<Client>, ...Column<Client>[]] = [
  { name: "client", title: "Client", value: (one) => one.client_id, cell: (one) => <>{one.client_id}{one.persistent && <Sub>its session is kept</Sub>}</> },
  { name: "user", title: "User", value: (one) => one.user },
  { name: "state", title: "State", value: (one) => (one.connected ? "connected" : "away"), cell: (one) => <Badge kind={one.connected ? "good" : "calm"}>{one.connected ? "connected" : "away"}</Badge> },
  { name: "subscriptions", title: "Subscriptions", is_number: true, value: (one) => one.subscriptions },
  { name: "queued", title: "Queued", is_number: true, value: (one) => one.queued },
  { name: "bytes", title: "Bytes queued", is_number: true, value: (one) => one.queued_bytes, cell: (one) => bytes(one.queued_bytes) },
  { name: "inflight", title: "In flight", is_number: true, value: (one) => one.inflight },
  { name: "sent", title: "Sent", is_number: true, value: (one) => one.sent_total },
  { name: "dropped", title: "Dropped", is_number: true, value: (one) => one.dropped_total },
];
const CLIENTS_ASKED = 10_000;
const REFUSALS_SHOWN = 100;
