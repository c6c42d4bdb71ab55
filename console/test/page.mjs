// Opens the console in headless Chromium and checks what a person would see.
// Usage: node page.mjs URL SCREENSHOT
// Exits non-zero with the reason when the page does not show the demo's line, live.

import assert from "node:assert/strict";

import { withPage } from "./browser.mjs";

const [url, screenshot] = process.argv.slice(2);
await withPage(async (page, troubles) => {
  await page.goto(url);

  const row = (section, text) => page.locator(`#${section} tbody tr`, { hasText: text });
  await row("agents", "demo").getByText("online").waitFor();
  await row("agents", "demo").getByText("deployed").waitFor();
  await row("topics", "demo-log").waitFor();
  await row("statements", "cpu-10s").waitFor();
  await row("jobs", "records.jsonl").getByText("completed").waitFor();

  // Live: the figures move by themselves while the page stays open.
  const received = row("statements", "cpu-10s").locator("td").nth(4);
  const before = await received.textContent();
  await page.waitForFunction(
    ([cell, old]) => cell.textContent !== old,
    [await received.elementHandle(), before],
  );
  await page.locator(".plot canvas").first().waitFor();
  // The plot draws: a line's color stands on its canvas. Which line's is chance, since lines that
  // are equal cover each other.
  await page.waitForFunction(() => {
    const canvas = document.querySelector(".plot canvas");
    const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
    const lines = [[0x0a, 0x7e, 0xa4], [0xd9, 0x77, 0x06], [0x16, 0xa3, 0x4a], [0x93, 0x33, 0xea]];
    const isLine = (i) =>
      data[i + 3] >= 64 && lines.some((c) => c.every((v, j) => Math.abs(data[i + j] - v) <= 8));
    for (let i = 0; i < data.length; i += 4) {
      if (isLine(i)) {
        return true;
      }
    }
    return false;
  });
  await page.locator(".station", { hasText: "Topics" }).getByText("records/s").waitFor();
  await page.screenshot({ path: screenshot, fullPage: true });
  assert.deepEqual(troubles, [], "the page reported errors");
});
