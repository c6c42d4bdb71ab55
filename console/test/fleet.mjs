// The fleet's pages in headless Chromium, with agents that obey: an agent is found among many, a flow
// is published in steps and followed until all have it, and then another one to all at once.
// Usage: node fleet.mjs URL SCREENSHOT
// Exits non-zero with the reason when a page does not show or do what it should.

import assert from "node:assert/strict";

import { Crowd } from "./agents.mjs";
import { withPage } from "./browser.mjs";

const [url, screenshot] = process.argv.slice(2);
const meters = new Crowd(url, "meters", 1500);
const pumps = new Crowd(url, "pumps", 40);
await meters.beat();
await pumps.beat();
const beating = pumps.run(300);

try {
  await withPage(async (page, troubles) => {
    await page.goto(url);
    await findAnAgent(page);
    await giveAClass(page);
    await rollOut(page);
    await publishToAll(page);
    assert.deepEqual(troubles, [], "the pages reported errors");
    await refuse(page, troubles);
    await events(page);
    await dark(page);
    assert.deepEqual(troubles, [], "the pages reported errors");
  });
} finally {
  pumps.stop();
  await beating;
}

/** By keyboard alone, from the first page on. */
async function findAnAgent(page) {
  await page.getByRole("link", { name: "Fleet" }).waitFor();
  await tabTo(page, (name) => name === "Fleet");
  await page.keyboard.press("Enter");
  await page.getByText("1,540 agents in 2 classes").waitFor();
  await tabTo(page, (name) => name.startsWith("Identifier or host"));
  await page.keyboard.type("meters-123");
  const rows = page.locator("#agents tbody tr");
  await page.waitForFunction(() => document.querySelectorAll("#agents tbody tr").length === 10);
  await page.keyboard.type("4");
  await page.waitForFunction(() => document.querySelectorAll("#agents tbody tr").length === 1);
  assert.match(await rows.first().textContent(), /meters-1234.*host-meters-1234.*meters.*online/);
  assert.match(page.url(), /#\/fleet\?search=meters-1234$/, "what is looked for can be sent to others");
  await tabTo(page, (name) => name === "meters-1234");
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { name: /^meters-1234/ }).waitFor();
  await page.locator("#queues tbody tr", { hasText: "to-broker" }).waitFor();
  await page.locator("#operations").waitFor();
  // Back is back to what was looked for; without it, pages of fifty.
  await page.goBack();
  await page.waitForFunction(() => document.querySelectorAll("#agents tbody tr").length === 1);
  assert.equal(await page.getByLabel("Identifier or host").inputValue(), "meters-1234");
  await page.getByRole("link", { name: "All agents" }).click();
  await page.waitForFunction(() => document.querySelectorAll("#agents tbody tr").length === 50);
  await page.getByRole("combobox", { name: "Class", exact: true }).selectOption("pumps");
  await page.waitForFunction(() => document.querySelectorAll("#agents tbody tr").length === 40);
  await page.getByRole("link", { name: "All agents" }).click();
  await page.waitForFunction(() => document.querySelectorAll("#agents tbody tr").length === 50);
  const first = await rows.first().getAttribute("data-id");
  await page.getByRole("link", { name: "Next page" }).click();
  await page.waitForFunction((old) => document.querySelector("#agents tbody tr")?.dataset.id > old, first);
}

/** An agent that names no class gets one, and is parked again when that is taken back. */
async function giveAClass(page) {
  const loose = new Crowd(url, "loose", 1);
  loose.names_class = false;
  await loose.beat();
  const [id] = loose.ids;
  const link = page.getByRole("link", { name: "1 without a class" });
  await link.waitFor();
  await link.click();
  await page.getByRole("link", { name: id }).click();
  await page.getByText("none: parked").waitFor();
  await page.getByLabel("Class to give").selectOption("meters");
  await page.getByRole("button", { name: "Give the class" }).click();
  await page.getByText("given by an operator").waitFor();
  await page.getByRole("button", { name: "Take the class back" }).click();
  await page.getByText("none: parked").waitFor();
  // What follows counts agents.
  const removed = await fetch(new URL(`api/v1/agents/${id}`, url), { method: "DELETE" });
  assert.equal(removed.status, 200);
  await page.getByRole("link", { name: "Fleet" }).first().click();
}

async function rollOut(page) {
  await page.getByRole("row", { name: /^pumps/ }).first().getByRole("link", { name: "pumps" }).first().click();
  await page.getByRole("heading", { name: "pumps", exact: true }).waitFor();
  await page.getByLabel("MiNiFi YAML or NiFi flow JSON").fill(flow(1));
  await page.getByRole("button", { name: "Check" }).click();
  await page.getByRole("status").getByText(/not checked|fits/).waitFor();
  await page.getByLabel("In steps").check();
  await page.getByLabel("First, percent").fill("10");
  await page.getByLabel("Agents at a time").fill("8");
  await page.getByLabel("Seconds between").fill("1");
  // Who clicks twice publishes once.
  await page.getByRole("button", { name: "Publish", exact: true }).dblclick();
  await page.getByText("Version 1 is being rolled out.").waitFor();
  const card = page.locator("#rollout");
  await card.getByText("Roll-out of version 1").waitFor();
  await card.getByText("running", { exact: true }).waitFor();
  // Some have it and some do not: the way is seen, not only its end.
  await page.waitForFunction(() => {
    const text = document.querySelector("#rollout .shares")?.textContent ?? "";
    const deployed = Number(/deployed (\d+)/.exec(text)?.[1] ?? 0);
    return deployed > 0 && deployed < 40;
  });
  await card.getByRole("button", { name: "Pause" }).click();
  await card.getByText("paused", { exact: true }).waitFor();
  await card.getByRole("button", { name: "Resume" }).click();
  await card.locator(".shares").getByText("deployed 40").waitFor();
  await card.getByText("done", { exact: true }).waitFor();
  await page.locator("#flows tbody tr").getByText("wanted").waitFor();
  assert.equal(new Set(pumps.flows.values()).size, 1);
  assert.equal(pumps.flows.size, 40, "what the page says is what agents run");
  await card.locator(".plot canvas").waitFor();
}

async function publishToAll(page) {
  const before = pumps.flows.get("pumps-0000");
  await page.getByLabel("MiNiFi YAML or NiFi flow JSON").fill(flow(2));
  await page.getByLabel("All agents at once").check();
  // What goes to all is asked for first; who does not agree has published nothing.
  let asked = "";
  page.once("dialog", (dialog) => {
    asked = dialog.message();
    void dialog.dismiss();
  });
  await page.getByRole("button", { name: "Publish", exact: true }).click();
  assert.match(asked, /all 40 agents/);
  assert.equal(await page.locator("#flows tbody tr").count(), 1);
  page.once("dialog", (dialog) => void dialog.accept());
  await page.getByRole("button", { name: "Publish", exact: true }).click();
  await page.getByText("Version 2 is published.").waitFor();
  // Until the list is asked for again it shows the first version, as the wanted one.
  await page.locator("#flows tbody tr").nth(1).waitFor();
  const row = page.locator("#flows tbody tr").first();
  await row.getByText("wanted").waitFor();
  const id = await row.getAttribute("data-id");
  for (let looks = 0; ![...pumps.flows.values()].every((flow) => flow === id); looks += 1) {
    assert.ok(looks < 300, "agents do not run what the page says is wanted");
    await page.waitForTimeout(100);
  }
  await page.getByText("run the wanted flow 40").waitFor();
  assert.notEqual(id, before);
  await page.getByRole("button", { name: "Compare" }).click();
  await page.locator("#differences tbody tr").first().waitFor();
  await page.screenshot({ path: screenshot, fullPage: true });
}

/** What cannot be a flow is refused in words, and nothing is published. */
async function refuse(page, troubles) {
  await page.getByLabel("MiNiFi YAML or NiFi flow JSON").fill("no flow at all");
  page.once("dialog", (dialog) => void dialog.accept());
  await page.getByRole("button", { name: "Publish", exact: true }).click();
  const told = await page.locator("#publish").getByRole("alert").textContent();
  assert.ok(told.length > 20, told);
  assert.equal(await page.locator("#flows tbody tr").count(), 2);
  // The browser notes the refused request by itself.
  assert.ok(troubles.every((text) => text.includes("400")), String(troubles));
  troubles.length = 0;
}

async function events(page) {
  await page.getByRole("link", { name: "Events" }).click();
  await page.locator("#events tbody tr", { hasText: "rollout-done" }).waitFor();
  await page.getByLabel("Kind").selectOption("agent-registered");
  await page.locator("#events tbody tr", { hasText: "meters-" }).first().waitFor();
  await page.getByRole("link", { name: "Older" }).click();
  await page.getByRole("link", { name: "Newest" }).waitFor();
}

async function dark(page) {
  const ground = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  const light = await ground();
  await page.emulateMedia({ colorScheme: "dark" });
  assert.notEqual(await ground(), light);
}

/** Presses Tab until what has the focus has a name that fits. */
async function tabTo(page, fits) {
  const seen = [];
  for (let press = 0; press < 200; press += 1) {
    await page.keyboard.press("Tab");
    const name = await page.evaluate(() => {
      const at = document.activeElement;
      return (at?.labels?.[0]?.textContent ?? at?.textContent ?? "").trim();
    });
    if (fits(name)) {
      return;
    }
    seen.push(name);
  }
  assert.fail(`no way by Tab: ${seen.join(", ")}`);
}

function flow(number) {
  return `MiNiFi Config Version: 3\nFlow Controller:\n  name: pumps ${number}\nProcessors: []\n`;
}
