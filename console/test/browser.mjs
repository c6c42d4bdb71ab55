// A headless Chromium with one page, which notes what goes wrong on it.

import { chromium } from "playwright-core";

/** Runs `check(page, troubles)`; `troubles` gathers the errors that the page reports, `options` are the page's. */
export async function withPage(check, options = {}) {
  const browser = await chromium.launch({
    executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
    args: [
      "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
      "--disable-background-networking", "--disable-component-update", "--disable-sync",
    ],
  });
  try {
    const page = await browser.newPage({ viewport: { width: 1280, height: 1000 }, ...options });
    page.setDefaultTimeout(45_000);
    const troubles = [];
    page.on("pageerror", (error) => troubles.push(String(error)));
    page.on("console", (message) => message.type() === "error" && troubles.push(message.text()));
    await check(page, troubles);
  } finally {
    await browser.close();
  }
}
