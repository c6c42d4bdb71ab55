// A tenant's page in headless Chromium: its records move from topics of its own to a collection and
// back while they stay readable, and are purged in the end, the other tenant's not.
// Usage: node tenants.mjs URL REST SCREENSHOT
// Exits non-zero with the reason when a page does not show or do what it should.

import assert from "node:assert/strict";

import { call, produce as produceTo } from "./api.mjs";
import { withPage } from "./browser.mjs";

const [url, rest, screenshot] = process.argv.slice(2);

const api = async (path) => (await fetch(new URL(`api/v1/${path}`, url))).json();

const keep = (tenant, change) => call("PUT", new URL(`api/v1/tenants/${tenant}`, url), change);
const produce = (tenant, value) => produceTo(rest, `env.ns.${tenant}.ORDERS`, [{ value }]);

async function records(tenant) {
  const { topics } = await api(`tenants/${tenant}/usage`);
  return Object.fromEntries(topics.map((one) => [one.topic, one.records]));
}

async function until(what, check) {
  for (let looks = 0; ; looks += 1) {
    if (await check()) {
      return;
    }
    assert.ok(looks < 200, what);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

await withPage(async (page, troubles) => {
  for (const tenant of ["diku", "beta"]) {
    await keep(tenant, { collection: null });
    await produce(tenant, 1);
  }
  await keep("beta", { collection: "ALL" });
  await until("beta does not switch", async () => (await api("tenants/beta")).collection === "ALL");
  await produce("beta", 2);

  await page.goto(`${url}#/tenants/diku`);
  const home = page.locator("#home");
  await home.getByText("Its records go to topics of its own.").waitFor();
  await home.getByLabel("Topics").selectOption("shared");
  await home.getByRole("button", { name: "Set", exact: true }).click();
  await home.getByText("Its records go to the collection ALL.").waitFor();
  await produce("diku", 2);
  const topics = page.locator("#tenant-topics tbody tr");
  await topics.filter({ hasText: "env.ns.ALL.ORDERS" }).getByText("shared").waitFor();
  assert.deepEqual(await records("diku"), { "env.ns.ALL.ORDERS": 1, "env.ns.diku.ORDERS": 1 });

  await home.getByLabel("Topics").selectOption("own");
  await home.getByLabel("Kept for hours").fill("48");
  await home.getByRole("button", { name: "Set", exact: true }).click();
  await home.getByText("Its records go to topics of its own.").waitFor();
  await until("the retention is not set", async () => (await api("tenants/diku")).retention_ms === 48 * 3_600_000);
  await produce("diku", 3);
  assert.deepEqual(await records("diku"), { "env.ns.ALL.ORDERS": 1, "env.ns.diku.ORDERS": 2 });
  await page.screenshot({ path: screenshot, fullPage: true });

  // Who does not agree has purged nothing.
  page.once("dialog", (dialog) => void dialog.dismiss());
  await home.getByRole("button", { name: "Purge its records" }).click();
  assert.deepEqual(await records("diku"), { "env.ns.ALL.ORDERS": 1, "env.ns.diku.ORDERS": 2 });
  page.once("dialog", (dialog) => void dialog.accept());
  await home.getByRole("button", { name: "Purge its records" }).click();
  await until("the records are still there", async () => Object.values(await records("diku")).every((count) => count === 0));
  assert.deepEqual(await records("beta"), { "env.ns.ALL.ORDERS": 1, "env.ns.beta.ORDERS": 1 });
  assert.deepEqual(troubles, [], "the pages reported errors");
});
