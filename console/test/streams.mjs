// The pages of topics and consumer groups in headless Chromium: one of many topics is found, ordered and opened,
// a group shows how far it is behind, lists say what is known of them, and nothing is wider than a telephone.
// Usage: node streams.mjs URL REST SCREENSHOT
// Exits non-zero with the reason when a page does not show or do what it should.

import assert from "node:assert/strict";

import { call, produce } from "./api.mjs";
import { withPage } from "./browser.mjs";

const [url, rest, screenshot] = process.argv.slice(2);
const manage = (method, path, body) => call(method, new URL(`api/v1/${path}`, url), body);
const numbers = (count) => Array.from({ length: count }, (_, n) => ({ value: n, partition: n % 3 }));
const rows = (page, list, count) =>
  page.waitForFunction(([list, count]) => document.querySelectorAll(`#${list} tbody tr`).length === count, [list, count]);

await withPage(async (page, troubles) => {
  await whileItIsRead(page);
  for (let number = 0; number < 240; number += 1) {
    await manage("POST", "topics", { name: `plant-${number}` });
  }
  const stream = "/streams/plant:readings";
  for (const name of ["orders", stream]) {
    await manage("POST", "topics", { name, partitions: 3, config: { "retention.ms": "86400000" } });
  }
  await produce(rest, "orders", numbers(30));
  await produce(rest, stream, numbers(9));
  const reset = { topics: [{ topic: "orders" }], to: { offset: 4 }, execute: true };
  await manage("POST", "groups/billing/reset-offsets", reset);

  await page.goto(url);
  await page.getByRole("link", { name: "Topics", exact: true }).click();
  await rows(page, "all-topics", 100);
  await page.getByText("242, page 1 of 3").waitFor();
  await page.getByRole("link", { name: "Next page" }).click();
  await page.getByText("242, page 2 of 3").waitFor();
  // The largest numbers first, and at the first page.
  await page.getByRole("link", { name: "Records in" }).click();
  await page.locator("#all-topics th[aria-sort=descending]", { hasText: "Records in" }).waitFor();
  const order = await page.locator("#all-topics tbody tr").evaluateAll((all) => all.slice(0, 2).map((row) => row.dataset.id));
  assert.deepEqual(order, ["orders", stream]);
  await page.screenshot({ path: screenshot, fullPage: true });
  await page.getByLabel("Find").fill("READINGS");
  await rows(page, "all-topics", 1);
  await page.getByText("1 of 242").waitFor();
  await page.getByLabel("Find").fill("no such");
  await page.getByText("None is like that.").waitFor();
  await page.getByLabel("Find").fill("readings");
  await page.getByRole("link", { name: stream }).click();

  await page.getByRole("heading", { name: stream }).waitFor();
  assert.match(await page.title(), /readings – topics – Thalweg/);
  await rows(page, "partitions", 3);
  const cells = (list) => page.locator(`#${list} tbody tr`).first().locator("th, td").allTextContents();
  assert.deepEqual(await cells("partitions"), ["0", "0", "3", "3"]);
  const set = page.locator("#settings tbody tr").first();
  assert.deepEqual(await set.locator("th, td").allTextContents(), ["retention.ms", "864000001 d 0 h", "set here"]);

  await page.getByRole("link", { name: "Groups", exact: true }).click();
  await page.getByRole("link", { name: "billing" }).click();
  await page.getByText("18 records").waitFor();
  await rows(page, "offsets", 3);
  assert.deepEqual(await cells("offsets"), ["orders", "0", "6", "4", "10", "nobody"]);
  await page.getByText("Nobody reads by it now.").waitFor();
  assert.deepEqual(troubles, [], "the pages reported errors");

  await onATelephone(page);
  await whenTheServerIsAway(page);
});

/** What is not known yet is not said to be none. */
async function whileItIsRead(page) {
  let let_go = () => undefined;
  const held = new Promise((resolve) => {
    let_go = resolve;
  });
  await page.route("**/api/v1/topics", async (route) => {
    await held;
    await route.continue();
  });
  await page.goto(`${url}#/topics`);
  await page.locator("#all-topics").getByText("Reading…").waitFor();
  assert.equal(await page.getByText("No topic yet").count(), 0);
  let_go();
  await page.getByText("No topic yet").waitFor();
  await page.unroute("**/api/v1/topics");
}

async function onATelephone(page) {
  await page.setViewportSize({ width: 360, height: 740 });
  for (const path of ["", "mqtt", "topics", "topics/orders", "groups", "groups/billing", "schemas", "statements", "imports", "tenants", "fleet", "events"]) {
    await page.goto(`${url}#/${path}`);
    await page.locator("main").locator("section, figure").first().waitFor();
    const width = await page.evaluate(() => document.documentElement.scrollWidth);
    assert.ok(width <= 360, `#/${path} is ${width} wide`);
  }
}

/** What was known stays, and it is said that it is old. */
async function whenTheServerIsAway(page) {
  await page.goto(`${url}#/topics`);
  await rows(page, "all-topics", 100);
  await page.route("**/api/v1/**", (route) => route.abort());
  await page.getByText(/^No answer for \d+ s; what is shown is from then/).waitFor();
  await page.locator("main").getByText("the server does not answer").waitFor();
  await rows(page, "all-topics", 100);
  await page.reload();
  await page.locator("#all-topics").getByText("Not known").waitFor();
  assert.equal(await page.getByText("No topic yet").count(), 0);
}
