// The settings of a topic or a group: those that were set first, then those that hold by default.

import { Badge, Section } from "../parts";
import type { Setting } from "./types";

export function Settings({ settings }: { settings: Setting[] }) {
  const ordered = [...settings.filter((one) => one.is_set), ...settings.filter((one) => !one.is_set)];
  return (
    <Section id="settings" title="Settings" empty="It has none." size={ordered.length}>
      <thead>
        <tr><th scope="col">Setting</th><th scope="col">Value</th><th scope="col">From</th></tr>
      </thead>
      <tbody>
        {ordered.map((one) => (
          <tr key={one.name} data-id={one.name}>
            <th scope="row">{one.name}</th>
            <td><code>{one.value ?? "–"}</code></td>
            <td>{one.is_set ? <Badge kind="good">set here</Badge> : "the default"}</td>
          </tr>
        ))}
      </tbody>
    </Section>
  );
}
