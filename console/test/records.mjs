// A topic's page in headless Chromium: who reads it and how far they are behind, and its records, the newest and
// the oldest, from an offset or a time on, as they are best read and as bytes; nothing of them runs.
// Usage: node records.mjs URL REST SCREENSHOT
// Exits non-zero with the reason when a page does not show or do what it should.

import assert from "node:assert/strict";

import { call, produce } from "./api.mjs";
import { withPage } from "./browser.mjs";

const [url, rest, screenshot] = process.argv.slice(2);
const manage = (method, path, body) => call(method, new URL(`api/v1/${path}`, url), body);
const base64 = (text) => Buffer.from(text).toString("base64");
const rows = (page) => page.locator("#records tbody tr");
const places = (page, expected) =>
  page.waitForFunction((expected) => [...document.querySelectorAll("#records tbody tr")].map((row) => row.dataset.id).join(" / ") === expected, expected);

// Half an hour off, so that no time zone is right by chance.
await withPage(async (page, troubles) => {
  for (const name of ["orders", "nothing"]) {
    await manage("POST", "topics", { name, partitions: 3, config: { "retention.ms": "-1" } });
  }
  await produce(rest, "orders", Array.from({ length: 12 }, (_, n) => ({ value: n, partition: n % 3 })));
  await produceOdd();
  await manage("POST", "groups/billing/reset-offsets", { topics: [{ topic: "orders" }], to: { offset: 1 }, execute: true });

  await page.goto(`${url}#/topics/orders`);
  const readers = page.locator("#readers tbody tr");
  await readers.first().waitFor();
  assert.deepEqual(await readers.first().locator("th, td").allTextContents(), ["billing", "Empty", "10", "3", "0"]);
  await readers.getByRole("link", { name: "billing" }).click();
  await page.getByRole("heading", { name: /^billing/ }).waitFor();
  assert.ok(await page.evaluate(() => document.activeElement === document.querySelector("main")), "the keyboard is left behind");
  await page.goBack();

  await newest(page);
  await page.screenshot({ path: screenshot, fullPage: true });
  await others(page);
  await page.goto(`${url}#/topics/nothing`);
  await page.getByText("It holds no record: write some with `thalweg produce nothing`").waitFor();
  await page.getByText("No group reads it").waitFor();
  assert.deepEqual(troubles, [], "the pages reported errors");
}, { timezoneId: "Asia/Kolkata" });

/** One with all that a record can have, and with what would do harm. */
async function produceOdd() {
  const { data } = await call("GET", new URL("v3/clusters", rest));
  const address = new URL(`v3/clusters/${data[0].cluster_id}/topics/orders/records`, rest);
  const answer = await fetch(address, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: `{"partition_id": 0, "timestamp": "2026-01-31T12:00:00.123Z",
      "headers": [{"name": "trace", "value": "${base64("t-1")}"}, {"name": "raw", "value": "/w=="}],
      "key": {"type": "STRING", "data": "a\u202eb"},
      "value": {"type": "JSON", "data": {"id":12345678901234567890,"html":"<img src=x onerror=document.title=1>","list":[1.10,{}]}}}`,
  });
  assert.equal(answer.status, 200, await answer.clone().text());
}

async function newest(page) {
  await page.getByText("13, the newest of each partition").waitFor();
  const odd = page.locator('#records tr[data-id="0 4"]');
  const when = odd.locator("time");
  assert.equal(await when.textContent(), "2026-01-31 17:30:00.123");
  assert.equal(await when.getAttribute("title"), "2026-01-31 12:00:00.123 UTC");
  // It is older than the others, whatever its offset is.
  assert.equal(await rows(page).last().getAttribute("data-id"), "0 4");
  assert.equal(await odd.locator("td.data").first().textContent(), "a\\u202eb");
  await odd.locator("summary").focus();
  await page.keyboard.press("Enter");
  const value = odd.getByLabel("Value");
  await value.waitFor();
  // Numbers as they were written, and tags as text.
  assert.equal(await value.textContent(), `{
  "id": 12345678901234567890,
  "html": "<img src=x onerror=document.title=1>",
  "list": [
    1.10,
    {}
  ]
}`);
  assert.equal(await page.locator("#records img").count(), 0);
  assert.deepEqual(await odd.locator("dl div").allTextContents(), ["tracet-1", "rawff"]);
}

async function others(page) {
  const look = () => page.getByRole("button", { name: "Look" }).click();
  const from = page.getByRole("combobox", { name: "From", exact: true });
  await from.selectOption("oldest");
  await page.getByLabel("Partition", { exact: true }).fill("1");
  await look();
  await places(page, "1 0 / 1 1 / 1 2 / 1 3");
  assert.match(page.url(), /from=oldest/, "what is looked at can be sent to others");
  await from.selectOption("offset");
  await page.getByLabel("Offset", { exact: true }).fill("2");
  await look();
  await places(page, "1 2 / 1 3");
  await page.getByRole("link", { name: "Older records" }).click();
  await places(page, "1 1 / 1 0");
  await page.getByRole("link", { name: "Newer records" }).click();
  await places(page, "1 2 / 1 3");
  await page.getByLabel("Shown as").selectOption("binary");
  await page.getByLabel("At most").fill("1");
  await look();
  await places(page, "1 2");
  assert.equal(await rows(page).locator("summary").textContent(), "37");
  await rows(page).locator("summary").click();
  assert.match(await rows(page).getByLabel("Value").textContent(), /^00000000 {2}37 +7$/);

  await from.selectOption("time");
  await page.getByLabel("Time (Asia/Kolkata)").or(page.getByLabel("Time (Asia/Calcutta)")).fill("2026-01-31T17:30:00");
  await page.getByLabel("Partition", { exact: true }).fill("0");
  await page.getByLabel("At most").fill("200");
  await look();
  await page.waitForFunction(() => document.querySelectorAll("#records tbody tr").length === 5);
  assert.match(page.url(), /from=2026-01-31T12%3A00%3A00.000Z/);
  // What comes later is seen when it is looked for again, in the same place.
  await page.getByLabel("Shown as").selectOption("");
  await look();
  await page.locator('#records tr[data-id="0 4"]', { hasText: "12345678901234567890" }).waitFor();
  await produce(rest, "orders", [{ value: "late", partition: 0 }]);
  await look();
  await page.locator("#records").getByText('"late"').waitFor();
}
