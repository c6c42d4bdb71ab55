// The statements' pages in headless Chromium: one is explained, added, watched, paused, resumed,
// replaced and removed; an error is shown under its character; what a form says beside its text outlives a
// replacement; and of very many a page is shown.
// Usage: node statements.mjs URL SCREENSHOT
// Exits non-zero with the reason when a page does not show or do what it should.

import assert from "node:assert/strict";

import { withPage } from "./browser.mjs";

const [url, screenshot] = process.argv.slice(2);
const text = (page) => page.locator("#editor textarea");
const button = (page, name) => page.getByRole("button", { name, exact: true });

await withPage(async (page, troubles) => {
  await page.goto(url);
  await page.getByRole("link", { name: "Statements", exact: true }).click();
  await page.getByText("No statement runs yet").waitFor();

  await text(page).fill('SELECT v FROM mqtt."in/x" WHERE v > 0');
  await page.getByLabel("Name").fill("watched");
  await button(page, "Explain").click();
  await page.getByText('Reads v of mqtt."in/x" as json').waitFor();
  await button(page, "Add").click();
  await page.getByRole("heading", { name: /^watched/ }).waitFor();

  const inject = async (v) => {
    const answer = await fetch(new URL("event/in/x", url), { method: "POST", body: JSON.stringify({ v }) });
    assert.equal(answer.status, 200);
  };
  const book = (name) => page.locator("#summary dl div", { hasText: name }).locator("dd").first();
  // Rows are shown from the first look on.
  let sent = 0;
  const rows = page.locator("#rows pre");
  while (!(await rows.isVisible())) {
    sent += 1;
    await inject(sent);
    await page.waitForTimeout(200);
    assert.ok(sent < 100, "no row is shown");
  }
  await page.waitForFunction((n) => document.querySelector("#rows pre")?.textContent.includes(`{"v":${n}}`), sent);
  await page.locator("#rows .plot canvas").waitFor();
  await page.waitForFunction((n) => document.querySelector("#summary dd")?.textContent === String(n), sent);

  await button(page, "Pause").click();
  await page.getByText("paused", { exact: true }).waitFor();
  await inject(500);
  await button(page, "Resume").click();
  await page.getByText("running", { exact: true }).waitFor();
  assert.equal(await book("Received").textContent(), String(sent), "a paused statement takes nothing");

  await text(page).fill('SELECT v * 2 AS twice FROM mqtt."in/x"');
  await button(page, "Replace").click();
  const replaced = async () => {
    const answer = await fetch(new URL("api/v1/statements", url));
    return (await answer.json()).statements[0].text.includes("twice");
  };
  for (let looks = 0; !(await replaced()); looks += 1) {
    assert.ok(looks < 100, "it is not replaced");
    await page.waitForTimeout(100);
  }
  await inject(21);
  await page.waitForFunction(() => document.querySelector("#rows pre")?.textContent.includes('{"twice":42}'));
  await page.screenshot({ path: screenshot, fullPage: true });
  assert.deepEqual(troubles, [], "the pages reported errors");

  // Values below zero have a line, and instants do not lay it flat.
  await text(page).fill('SELECT v AS low, 1795382200000 AS window_start FROM mqtt."in/x"');
  await button(page, "Replace").click();
  await page.getByText("It is replaced and").waitFor();
  await page.locator("#rows pre").waitFor();
  for (const v of [-5, -6, -5]) {
    await inject(v);
    await page.waitForTimeout(300);
  }
  await page.locator("#rows .u-legend", { hasText: "low" }).waitFor();
  assert.doesNotMatch(await page.locator("#rows .u-legend").textContent(), /window_start/);

  await keepForm(page);
  await page.goto(`${url}#/statements/watched`);
  await page.getByRole("heading", { name: /^watched/ }).waitFor();
  assert.deepEqual(troubles, [], "the pages reported errors");

  await text(page).fill('SELECT v\nFORM mqtt."x"');
  await button(page, "Explain").click();
  await page.locator("#editor pre.place", { hasText: "^" }).waitFor();
  const place = await page.locator("#editor pre.place").textContent();
  assert.match(place, /^FORM mqtt."x"\n *\^$/, "the error is marked in its line");
  // The browser reports the refusal too.
  troubles.length = 0;

  page.once("dialog", (dialog) => void dialog.accept());
  await button(page, "Remove").click();
  await page.locator("#all-statements tbody tr", { hasText: "kept" }).waitFor();
  assert.equal(await page.locator("#all-statements tbody tr").count(), 1);
  await findOne(page);
  assert.deepEqual(troubles.filter((one) => !one.includes("404")), [], "the pages reported errors");
});

async function call(method, path, body) {
  const answer = await fetch(new URL(`api/v1/${path}`, url), { method, body: JSON.stringify(body), headers: { "content-type": "application/json" } });
  assert.ok(answer.ok, `${method} ${path}: ${answer.status} ${await answer.clone().text()}`);
  return answer.json();
}

/** One in EPL with policies is replaced, and is in EPL with its policies still. */
async function keepForm(page) {
  const form = { name: "kept", language: "epl", text: 'select v from "in/y"', lateness: "2s", policies: { input: "durable" } };
  const { id } = await call("POST", "statements", form);
  await page.goto(`${url}#/statements/${id}`);
  await page.getByRole("heading", { name: /^kept/ }).waitFor();
  await text(page).fill('select v * 3 as thrice from "in/y"');
  await button(page, "Replace").click();
  await page.getByRole("status").getByText("It is replaced").waitFor();
  const kept = await (await fetch(new URL(`api/v1/statements/${id}`, url))).json();
  assert.match(kept.text, /thrice/);
  assert.deepEqual([kept.language, kept.lateness, kept.policies.input], ["epl", "2s", "durable"]);
}

/** Of very many statements a page is drawn; one is found by its name or text, and they can be ordered. */
async function findOne(page) {
  for (let number = 0; number < 120; number += 1) {
    await call("POST", "statements", { name: `many-${number}`, text: `SELECT v + ${number} AS w FROM mqtt."in/many"` });
  }
  const rows = page.locator("#all-statements tbody tr");
  await page.waitForFunction(() => document.querySelectorAll("#all-statements tbody tr").length === 100);
  await page.getByRole("link", { name: "Next page" }).click();
  await page.waitForFunction(() => document.querySelectorAll("#all-statements tbody tr").length === 21);
  await page.getByLabel("Find").fill("many-77");
  await page.waitForFunction(() => document.querySelectorAll("#all-statements tbody tr").length === 1);
  assert.match(page.url(), /search=many-77/, "what is looked for can be sent to others");
  await page.getByLabel("Find").fill("v + 1");
  await page.getByRole("link", { name: "Statement", exact: true }).click();
  await page.locator("#all-statements th[aria-sort=ascending]").waitFor();
  assert.match(await rows.first().textContent(), /^many-1SELECT/);
}
