// A group's page in headless Chromium: its offsets are reset once it was shown what changes, and not while it has
// members.
// Usage: node reset.mjs URL REST SCREENSHOT
// Exits non-zero with the reason when a page does not show or do what it should.

import assert from "node:assert/strict";

import { call, produce } from "./api.mjs";
import { withPage } from "./browser.mjs";

const [url, rest, screenshot] = process.argv.slice(2);
const manage = (method, path, body) => call(method, new URL(`api/v1/${path}`, url), body);
const current = async () => (await manage("GET", "groups/billing")).offsets.filter((one) => one.topic === "orders").map((one) => one.current);
const V2 = "application/vnd.kafka.v2+json";

await withPage(async (page, troubles) => {
  for (const name of ["orders", "other"]) {
    await manage("POST", "topics", { name, partitions: 3 });
    await produce(rest, name, Array.from({ length: 30 }, (_, n) => ({ value: n, partition: n % 3 })));
  }
  await manage("POST", "groups/billing/reset-offsets", { topics: [{ topic: "orders" }, { topic: "other" }], to: { offset: 4 }, execute: true });
  await page.goto(`${url}#/groups/billing`);
  const reset = page.locator("#reset");
  const show = () => reset.getByRole("button", { name: "Show what changes" }).click();
  const moves = reset.locator("#moves tbody tr");
  const cells = () => moves.evaluateAll((all) => all.map((row) => [...row.cells].map((cell) => cell.textContent).join("|")));

  await reset.getByRole("combobox", { name: "To", exact: true }).selectOption("latest");
  await show();
  await moves.nth(5).waitFor();
  await reset.getByRole("combobox", { name: "Topic", exact: true }).selectOption("orders");
  // What another form would do is not shown any more.
  assert.equal(await moves.count(), 0);
  await show();
  await moves.nth(2).waitFor();
  const further = "6 offsets further: what is there is left out";
  assert.deepEqual(await cells(), [0, 1, 2].map((partition) => `orders|${partition}|4|10|${further}`));
  await page.screenshot({ path: screenshot, fullPage: true });
  assert.deepEqual(await current(), [4, 4, 4], "showing changes nothing");
  await reset.getByRole("button", { name: "Reset 3 partitions" }).click();
  await reset.getByText("Its offsets are reset.").waitFor();
  assert.deepEqual(await current(), [10, 10, 10]);
  await page.locator('#offsets tr[data-id="orders 0"]', { hasText: "010" }).waitFor();

  await reset.getByRole("combobox", { name: "To", exact: true }).selectOption("offset");
  await reset.getByLabel("Offset", { exact: true }).fill("7");
  await reset.getByLabel("Partitions", { exact: true }).fill("1");
  await show();
  await moves.first().waitFor();
  assert.deepEqual(await cells(), ["orders|1|10|7|3 offsets back: what is there is read again"]);
  await reset.getByRole("button", { name: "Reset 1 partition", exact: true }).click();
  await reset.getByText("Its offsets are reset.").waitFor();
  assert.deepEqual(await current(), [10, 7, 10]);

  await reset.getByRole("combobox", { name: "To", exact: true }).selectOption("time");
  await reset.getByLabel(/^Time/).fill("2020-01-01T00:00:00");
  await reset.getByLabel("Partitions", { exact: true }).fill("");
  await show();
  await moves.nth(2).waitFor();
  assert.match((await cells())[1], /^orders\|1\|7\|0\|/);
  await reset.getByLabel(/^Time/).fill("2100-01-01T00:00:00");
  await reset.getByLabel("Partitions", { exact: true }).fill("0,2");
  await show();
  await reset.getByText("Nothing: it is there already.").waitFor();
  assert.equal(await reset.getByRole("button", { name: /^Reset/ }).count(), 0);
  await reset.getByLabel("Partitions", { exact: true }).fill("7");
  await show();
  await reset.getByRole("alert").waitFor();
  // The browser reports the refusal too.
  assert.deepEqual(troubles.splice(0).filter((one) => !one.includes("404")), []);

  const instance = new URL("consumers/billing/instances/c/", rest);
  await call("POST", new URL("consumers/billing", rest), { name: "c", format: "json" }, V2);
  await call("POST", new URL("subscription", instance), { topics: ["orders"] }, V2);
  await fetch(new URL("records?timeout=5000", instance), { headers: { accept: "application/vnd.kafka.json.v2+json" } });
  await reset.getByText("Its 1 member would commit their own offsets over it: stop them first.").waitFor();
  assert.equal(await reset.getByRole("button").count(), 0);
  await call("DELETE", new URL("../c", instance), undefined, V2);
  await reset.getByRole("button", { name: "Show what changes" }).waitFor();
  assert.deepEqual(troubles, [], "the pages reported errors");
});
