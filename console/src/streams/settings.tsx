// The settings of a topic or a group: those that were set first, then those that hold by default.

import { age, bytes, count } from "../format";
import { Badge, Section, Sub } from "../parts";
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
            <td><code>{one.value ?? "–"}</code><Sub>{inUnits(one)}</Sub></td>
            <td>{one.is_set ? <Badge kind="good">set here</Badge> : "the default"}</td>
          </tr>
        ))}
      </tbody>
    </Section>
  );
}

/** A time or a size that is long, as people say it; null where the number says as much. */
function inUnits({ name, value }: Setting): string | null {
  const number = value === null || value === "" ? NaN : Number(value);
  if (!Number.isSafeInteger(number) || number < 1000) {
    return null;
  }
  if (name.endsWith(".ms")) {
    return age(number);
  }
  return name.endsWith("bytes") ? bytes(number) : name.endsWith(".messages") ? count(number) : null;
}
