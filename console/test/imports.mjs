// The imports' pages in headless Chromium: files are sent for two tenants, one job is paused,
// resumed and watched to its end with its journal and its reject file, one is cancelled, rejected
// records are tried again, and a weight is set.
// Usage: node imports.mjs URL SCREENSHOT
// Exits non-zero with the reason when a page does not show or do what it should.

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";

import { withPage } from "./browser.mjs";

const [url, screenshot] = process.argv.slice(2);
const RECORDS = 20_000;
const BROKEN = 41;

/** JSON lines of which one is no JSON. */
function lines(prefix) {
  const line = (_, n) => (n === BROKEN - 1 ? "{broken" : JSON.stringify({ id: `${prefix}${n}`, name: "x".repeat(100) }));
  return Buffer.from(`${Array.from({ length: RECORDS }, line).join("\n")}\n`);
}

const button = (page, name) => page.getByRole("button", { name, exact: true });
const book = (page, name) => page.locator("#summary dl div", { has: page.getByText(name, { exact: true }) }).locator("dd");
const api = async (path) => (await fetch(new URL(`api/v1/${path}`, url))).json();

/** Begins an import that has nearly all of the sink, so that others are on their way for long; answers what ends it. */
async function crowdOut() {
  const call = async (method, path, body) => {
    const answer = await fetch(new URL(`api/v1/${path}`, url), { method, body, headers: { "content-type": "application/json" } });
    assert.ok(answer.ok, `${method} ${path}: ${answer.status} ${await answer.clone().text()}`);
    return answer.json();
  };
  await call("PUT", "tenants/crowd", JSON.stringify({ weight: 200 }));
  const job = await call("POST", "imports?tenant=crowd&name=crowd.jsonl&format=jsonl&key=id", '{"id":"1"}\n'.repeat(4_000_000));
  return { end: () => call("DELETE", `imports/${job.id}`) };
}

async function sendFile(page, tenant, prefix) {
  await page.goto(`${url}#/imports`);
  await page.locator("#upload input[type=file]").setInputFiles({ name: `${prefix}.jsonl`, mimeType: "application/jsonl", buffer: lines(prefix) });
  await page.locator("#upload").getByLabel("Tenant").fill(tenant);
  await page.getByLabel("Id field").fill("id");
  await button(page, "Import").click();
  await page.getByRole("heading", { name: `${prefix}.jsonl` }).waitFor();
}

await withPage(async (page, troubles) => {
  await page.goto(url);
  await page.getByRole("link", { name: "Imports", exact: true }).click();
  await page.getByText("No import yet").waitFor();

  // One job: paused it stands still, resumed it ends with all but the broken record.
  const crowd = await crowdOut();
  await sendFile(page, "diku", "first");
  await button(page, "Pause").click();
  await page.locator(".badge", { hasText: "paused" }).waitFor();
  const id = decodeURIComponent(page.url().split("/").at(-1));
  const [before] = [await api(`imports/${id}`), await page.waitForTimeout(1000)];
  assert.equal((await api(`imports/${id}`)).records_done, before.records_done, "a paused job does nothing");
  assert.ok(before.records_done < RECORDS, "it was paused on its way");
  await button(page, "Resume").click();

  // The other tenant's comes beside it: both have a line in the plot of shares.
  await sendFile(page, "reshare", "second");
  const other = decodeURIComponent(page.url().split("/").at(-1));
  await page.getByRole("link", { name: "All imports" }).click();
  await page.locator("#sharing tbody tr", { hasText: "diku" }).waitFor();
  await page.locator("#sharing tbody tr", { hasText: "reshare" }).waitFor();
  await page.locator("#shares .plot canvas").waitFor();
  await page.locator("#shares .u-legend", { hasText: "diku" }).waitFor();
  await page.locator("#jobs tbody tr", { hasText: "second.jsonl" }).waitFor();
  await page.screenshot({ path: screenshot, fullPage: true });
  await page.locator("#jobs tbody tr", { hasText: "second.jsonl" }).getByRole("link", { name: "second.jsonl" }).click();
  page.once("dialog", (dialog) => void dialog.accept());
  await button(page, "Cancel").click();
  await page.locator(".badge", { hasText: "cancelled" }).waitFor();
  assert.equal((await api(`imports/${other}`)).state, "cancelled");
  await crowd.end();

  await page.goto(`${url}#/imports/${id}`);
  await page.locator(".badge", { hasText: "completed with rejects" }).waitFor();
  await page.getByText(`${RECORDS.toLocaleString("en-US")} of ${RECORDS.toLocaleString("en-US")} records`).waitFor();
  assert.equal(await book(page, "Rejected").textContent(), "1");
  assert.equal(await book(page, "Created").textContent(), (RECORDS - 1).toLocaleString("en-US"));
  const entry = page.locator("#journal tbody tr");
  assert.equal(await entry.count(), 1);
  assert.match(await entry.textContent(), new RegExp(`^${BROKEN}.*rejected`));

  // The reject file has the record as it stood in the file.
  const download = page.waitForEvent("download");
  await page.getByRole("link", { name: "Reject file" }).click();
  const rejects = await readFile(await (await download).path(), "utf8");
  assert.equal(rejects, "{broken\n");
  await page.getByLabel("Retry a repaired file").setInputFiles({ name: "repaired.jsonl", mimeType: "application/jsonl", buffer: Buffer.from('{"id":"repaired"}\n') });
  await page.getByText("the rejects of another job").waitFor();
  await page.locator(".badge", { hasText: /^completed$/ }).waitFor();
  assert.equal(await book(page, "Created").textContent(), "1");

  // A tenant's own jobs, and its weight.
  await page.getByRole("link", { name: "Tenants", exact: true }).click();
  const diku = page.locator("#tenants tbody tr", { hasText: "diku" });
  // Who has imported something and is not kept has no page.
  await diku.getByText("not kept").waitFor();
  assert.equal(await diku.getByRole("link", { name: "diku" }).count(), 0);
  await diku.getByLabel("Weight of diku", { exact: true }).fill("4");
  await diku.getByRole("button").click();
  const weight = async () => (await api("tenants")).tenants.find((one) => one.tenant === "diku")?.weight;
  for (let looks = 0; (await weight()) !== 4; looks += 1) {
    assert.ok(looks < 100, "the weight is not set");
    await page.waitForTimeout(100);
  }
  await diku.getByRole("link", { name: "diku" }).waitFor();
  await page.goto(`${url}#/imports?tenant=diku`);
  await page.waitForFunction(() => document.querySelectorAll("#jobs tbody tr").length === 2);
  // A file in the encoding that the form names, for the tenant whose imports are shown.
  const latin = Buffer.from("id,title\nl\u00e9,caf\u00e9\n", "latin1");
  await page.locator("#upload input[type=file]").setInputFiles({ name: "latin.csv", mimeType: "text/csv", buffer: latin });
  await page.getByLabel("Id field").fill("id");
  assert.equal(await page.locator("#upload").getByLabel("Tenant").inputValue(), "diku");
  await page.getByLabel("Encoding").fill("windows-1252");
  await button(page, "Import").click();
  await page.getByRole("heading", { name: "latin.csv" }).waitFor();
  await page.locator(".badge", { hasText: /^completed$/ }).waitFor();
  const record = JSON.stringify(await api("records/diku/l%C3%A9"));
  assert.ok(record.includes("caf\u00e9"), record);
  await page.goto(`${url}#/imports?tenant=diku`);
  assert.deepEqual(troubles, [], "the pages reported errors");

  // What cannot be imported is refused in words.
  await page.locator("#upload input[type=file]").setInputFiles({ name: "x.jsonl", mimeType: "application/jsonl", buffer: Buffer.from("{}\n") });
  await page.locator("#upload").getByLabel("Profile").fill("no-such");
  await button(page, "Import").click();
  const told = await page.locator("#upload").getByRole("alert").textContent();
  assert.match(told, /no-such/);
  assert.ok(troubles.every((text) => text.includes("404")), String(troubles));
});
