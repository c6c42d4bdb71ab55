// The pages of schemas in headless Chromium: one is found by a field of it, shown in each of its versions, and others
// are held against it.
// Usage: node schemas.mjs URL REGISTRY SCREENSHOT
// Exits non-zero with the reason when a page does not show or do what it should.

import assert from "node:assert/strict";

import { call } from "./api.mjs";
import { withPage } from "./browser.mjs";

const [url, registry, screenshot] = process.argv.slice(2);
const register = (subject, schema, rest = {}) =>
  call("POST", new URL(`subjects/${encodeURIComponent(subject)}/versions`, registry), { schema, ...rest });
const order = (fields) => JSON.stringify({ type: "record", name: "Order", fields });
const id = { name: "id", type: "long" };
const email = { name: "email", type: "string", default: "<b>none</b>" };

await withPage(async (page, troubles) => {
  await page.goto(url);
  await page.getByRole("link", { name: "Schemas", exact: true }).click();
  await page.getByText("No schema yet").waitFor();
  await register("orders-value", order([id]));
  await register("orders-value", order([id, email]));
  await register("a/b-key", '{"type":"object"}', { schemaType: "JSON" });
  await register("common", 'syntax = "proto3";\nmessage M {\n  string s = 1;\n}\n', { schemaType: "PROTOBUF" });
  await page.reload();
  const rows = page.locator("#subjects tbody tr");
  await rows.nth(2).waitFor();
  await page.getByLabel("Find").fill("EMAIL");
  await page.getByText("1 of 3").waitFor();
  assert.deepEqual((await rows.first().locator("th, td").allTextContents()).slice(0, 4), ["orders-value", "Avro", "2", "2"]);
  await page.screenshot({ path: screenshot, fullPage: true });

  await page.getByRole("link", { name: "orders-value" }).click();
  await page.getByRole("heading", { name: "orders-value" }).waitFor();
  assert.match(await page.title(), /^orders-value – schemas – Thalweg$/);
  const text = page.getByLabel("Schema", { exact: true });
  await text.waitFor();
  assert.match(await text.textContent(), /\n {6}"name": "email",\n/);
  assert.equal(await page.locator("main b").count(), 0, "what a schema says is text");
  const book = (name) => page.locator("#summary dl div", { has: page.locator("dt", { hasText: new RegExp(`^${name}$`) }) }).locator("dd");
  assert.match(await book("Compatibility").textContent(), /^BACKWARD/);
  assert.equal(await book("Version").textContent(), "2 of 2 versions");

  const check = page.locator("#check");
  const sent = check.getByLabel("Schema to check");
  await check.getByRole("button", { name: "Check" }).click();
  await check.getByText("It fits").waitFor();
  await sent.fill(order([id, { name: "must", type: "string" }]));
  assert.equal(await check.getByText("It fits").count(), 0);
  await check.getByRole("button", { name: "Check" }).click();
  await check.getByText("It does not fit.").waitFor();
  assert.match((await check.locator("li").allTextContents()).join(" "), /must/);
  await sent.fill("{");
  await check.getByRole("button", { name: "Check" }).click();
  await check.getByRole("alert").filter({ hasNotText: "It does not fit." }).waitFor();
  troubles.splice(0);

  await page.getByRole("combobox", { name: "Version", exact: true }).selectOption("1");
  await page.waitForFunction(() => document.querySelector("#schema pre")?.textContent.includes("email") === false);
  assert.match(page.url(), /version=1/);
  await page.getByRole("link", { name: "All schemas" }).click();
  for (const [subject, part] of [["a/b-key", '"type": "object"'], ["common", "string s = 1;"]]) {
    await page.getByRole("link", { name: subject, exact: true }).click();
    await text.filter({ hasText: part }).waitFor();
    await page.goBack();
  }
  assert.deepEqual(troubles, [], "the pages reported errors");
});
