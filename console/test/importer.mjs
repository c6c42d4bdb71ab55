// What the console shows to whoever is to do one tenant's imports alone: a file is sent and its job watched,
// and no page asks for what it may not see.
// Usage: node importer.mjs URL USER PASSWORD TENANT
// Exits non-zero with the reason when a page does not show or do what it should.

import assert from "node:assert/strict";

import { withPage } from "./browser.mjs";

const [url, username, password, tenant] = process.argv.slice(2);

await withPage(async (page, troubles) => {
  await page.goto(url);
  await page.getByText(`No import of ${tenant} yet`).waitFor();
  assert.deepEqual(await page.locator("nav.tabs a").allTextContents(), ["Imports"]);
  assert.equal(await page.locator("#upload").getByLabel("Tenant").inputValue(), tenant);
  const buffer = Buffer.from('{"id":"1"}\n{broken\n');
  await page.locator("#upload input[type=file]").setInputFiles({ name: "books.jsonl", mimeType: "application/jsonl", buffer });
  await page.getByLabel("Id field").fill("id");
  await page.getByRole("button", { name: "Import", exact: true }).click();
  await page.getByRole("heading", { name: "books.jsonl" }).waitFor();
  await page.locator(".badge", { hasText: "completed with rejects" }).waitFor();
  await page.getByRole("link", { name: "All imports" }).click();
  await page.locator("#jobs tbody tr").filter({ hasText: "books.jsonl" }).waitFor();
  assert.equal(await page.locator("#sharing").count(), 0);
  assert.deepEqual(troubles, []);
}, { httpCredentials: { username, password } });
