// The fleet's page over very many agents in headless Chromium: they are counted, filtered, and one of them
// is found by a part of its identifier and opened, while the page holds no more rows than a page of them.
// Usage: node fleet_many.mjs URL AGENTS SCREENSHOT
// Tells the times that were seen. Exits non-zero with the reason when the page does not show what it should.

import assert from "node:assert/strict";

import { Crowd } from "./agents.mjs";
import { withPage } from "./browser.mjs";

const [url, agents, screenshot] = process.argv.slice(2);
const pumps = new Crowd(url, "pumps", 40);
const meters = new Crowd(url, "meters", Number(agents) - pumps.ids.length);
const sought = meters.ids[Math.floor(meters.ids.length * 0.87)];
// Whose digits are in no other identifier before or after it.
const part = sought.slice("meters-".length);
const alike = meters.ids.filter((id) => id.includes(part)).length + pumps.ids.filter((id) => id.includes(part)).length;
const PAGE = 50;

await timed("agents register", async () => {
  await pumps.beat();
  await meters.beat(64);
});

await withPage(async (page, troubles) => {
  await timed("the overview counts them all", async () => {
    await page.goto(`${url}#/fleet`);
    await page.getByText(`${Number(agents).toLocaleString("en-US")} agents in 2 classes`).waitFor();
    await rows(page, PAGE);
  });
  const whole = await bounded(page);
  await page.screenshot({ path: screenshot });

  await timed("a class is chosen", async () => {
    await page.getByRole("combobox", { name: "Class", exact: true }).selectOption("pumps");
    await rows(page, pumps.ids.length);
  });
  assert.deepEqual(await shown(page), pumps.ids, "the class's agents, in their order");
  await timed("nobody is missing", async () => {
    await page.getByRole("link", { name: "All agents" }).click();
    await page.getByRole("combobox", { name: "State", exact: true }).selectOption("missing");
    await page.getByText("No agent is like that.").waitFor();
  });
  await timed("all are online", async () => {
    await page.getByRole("combobox", { name: "State", exact: true }).selectOption("online");
    await rows(page, PAGE);
  });
  await timed("a flow's state is chosen that all have", async () => {
    await page.getByRole("link", { name: "All agents" }).click();
    await page.getByRole("combobox", { name: "Flow", exact: true }).selectOption("none");
    await rows(page, PAGE);
  });

  // Pages follow each other without a gap.
  await page.getByRole("link", { name: "All agents" }).click();
  await rows(page, PAGE);
  for (let number = 0; number < 3; number += 1) {
    const expected = meters.ids.slice(number * PAGE, (number + 1) * PAGE);
    // The rows of what was chosen before may stand there for a moment, or none.
    await page.waitForFunction((ids) => {
      const rows = [...document.querySelectorAll("#agents tbody tr")].map((row) => row.dataset.id);
      return rows.join() === ids.join();
    }, expected);
    await timed(`page ${number + 2} comes`, async () => {
      await page.getByRole("link", { name: "Next page" }).click();
      await page.waitForFunction((last) => document.querySelector("#agents tbody tr")?.dataset.id > last, expected.at(-1));
    });
  }
  assert.ok(await bounded(page) < whole + 50, "pages that were left are gone from the document");

  // What is looked for begins at the first page again.
  await timed("one is found by a part of its identifier", async () => {
    await page.getByLabel("Identifier or host").fill(part);
    await rows(page, alike);
  });
  const row = page.locator(`#agents tbody tr[data-id="${sought}"]`);
  assert.match(await row.textContent(), new RegExp(`${sought}.*host-${sought}.*meters.*online`));
  await timed("nobody has such a name", async () => {
    await page.getByLabel("Identifier or host").fill("no-such-agent");
    await page.getByText("No agent is like that.").waitFor();
  });
  await page.getByLabel("Identifier or host").fill(`host-${sought}`);
  await rows(page, 1);
  await timed("its page is opened", async () => {
    await row.getByRole("link", { name: sought, exact: true }).click();
    await page.getByRole("heading", { name: new RegExp(`^${sought}`) }).waitFor();
    await page.locator("#queues tbody tr", { hasText: "to-broker" }).waitFor();
  });
  assert.deepEqual(troubles, [], "the pages reported errors");
});

/** Waits until the list has so many rows. */
function rows(page, count) {
  return page.waitForFunction((wanted) => document.querySelectorAll("#agents tbody tr").length === wanted, count);
}

function shown(page) {
  return page.locator("#agents tbody tr").evaluateAll((all) => all.map((row) => row.dataset.id));
}

/** How many elements the document has; a page's worth, however many agents there are. */
async function bounded(page) {
  const elements = await page.evaluate(() => document.querySelectorAll("*").length);
  assert.ok(elements < 2_000, `${elements} elements`);
  return elements;
}

/** Does it and tells how long it took. */
async function timed(what, work) {
  const start = performance.now();
  await work();
  console.log(`${what}: ${Math.round(performance.now() - start)} ms`);
}
