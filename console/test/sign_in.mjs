// Signing in, staying in and signing out by an issuer, in headless Chromium.
// Usage: node sign_in.mjs URL ISSUER
// Exits non-zero with the reason when a page does not show or do what it should.

import assert from "node:assert/strict";

import { withPage } from "./browser.mjs";

const [url, issuer] = process.argv.slice(2);
const host = new URL(issuer).host;
const button = (page, name) => page.getByRole("button", { name, exact: true });
const cookie = async (page, name) => (await page.context().cookies()).find((kept) => kept.name === name)?.value;

await withPage(async (page) => {
  await page.goto(`${url}#/statements`);
  await page.getByRole("link", { name: `Sign in with ${host}` }).click();
  // The issuer asks nobody, and sends the browser back at once.
  await button(page, "Sign out").waitFor();
  await page.locator("span", { hasText: /^ann/ }).waitFor();
  assert.equal(new URL(page.url()).origin, new URL(url).origin);
  assert.equal(new URL(page.url()).hash, "#/statements", "who signs in goes on where they were");
  assert.equal(await page.evaluate(() => document.cookie), "", "no script reads a cookie of it");

  // Its token is good for seconds only; whoever looks on stays in.
  const first = await cookie(page, "thalweg_login");
  assert.ok(first);
  const seen = new Set([first]);
  while (seen.size < 4) {
    await page.waitForTimeout(250);
    const now = await cookie(page, "thalweg_login");
    assert.ok(now, "the login ended");
    seen.add(now);
  }
  assert.ok(await button(page, "Sign out").isVisible());
  const me = await page.evaluate(async () => (await fetch("api/v1/me")).json());
  assert.equal(me.principal, "User:ann");

  // A page that wakes up after the token's end goes on as well.
  await page.context().clearCookies({ name: "thalweg_login" });
  await page.reload();
  await button(page, "Sign out").waitFor();

  await button(page, "Sign out").click();
  await page.getByText("Signed out at the issuer").waitFor();
  assert.equal(new URL(page.url()).host, host);
  assert.equal(await cookie(page, "thalweg_login"), undefined);
  assert.equal(await cookie(page, "thalweg_renewal"), undefined);
  await page.goto(url);
  await page.getByRole("link", { name: `Sign in with ${host}` }).waitFor();
});
