// /docs in a real browser: nothing beyond the page's edge, no request to another host, a request with a key, and no way for
// the page's scripts into the panel.
//
//   node docs.mjs BINARY

import assert from "node:assert/strict";
import { audit, newContext, overflow, startBrowser, startServer } from "./driver.mjs";

const [binary] = process.argv.slice(2);
// Faults of Scalar: a menu's name, and code that scrolls, which Chromium lets the keyboard reach anyway.
const ofScalar = /^(label-content-name-mismatch|scrollable-region-focusable): /;

const server = await startServer(binary);
// Every name but this machine's leads nowhere.
const browser = await startBrowser(["--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1"]);
try {
  // The colours depend on the light alone, the layout on the width alone.
  await looks(1280, "light");
  await looks(390, "dark");
  await withoutScript();
  await testsARequest();
  await staysOutOfThePanel();
  console.log("docs: ok");
} finally {
  await browser.close();
  await server.stop();
}

async function opened(page, place = "") {
  // Another hash alone would not load the page anew.
  await page.goto("about:blank");
  await page.goto(`${server.url}/docs${place}`);
  await page.getByRole("heading", { name: "TenantDesk API" }).first().waitFor();
}

async function looks(width, colorScheme) {
  const look = `${width}-${colorScheme}`;
  const context = await newContext(browser, { viewport: { width, height: 900 }, colorScheme });
  const page = await context.newPage();
  const complaints = [];
  const elsewhere = [];
  page.on("request", (request) => {
    if (!/^(data|blob):/.test(request.url()) && !request.url().startsWith(`${server.url}/`)) elsewhere.push(request.url());
  });
  page.on("console", (message) => {
    if (["error", "warning"].includes(message.type())) complaints.push(message.text());
  });
  page.on("pageerror", (error) => complaints.push(String(error)));
  for (const [place, heading] of [
    ["", "TenantDesk API"],
    ["#description/retries", "Retries"],
    ["#tag/hardware/POST/hardware.php", "Create hardware"],
    ["#tag/changes/GET/changes.php", "Follow the change log"],
  ]) {
    await opened(page, place);
    await page.waitForFunction((text) => [...document.querySelectorAll("h1, h2, h3")].some(
      (one) => one.textContent.trim() === text && one.getBoundingClientRect().top >= 0 && one.getBoundingClientRect().bottom < innerHeight), heading);
    assert.deepEqual(await overflow(page), [], look + place);
    // An audit takes long. The other places are of the same kinds.
    if (["TenantDesk API", "Create hardware"].includes(heading)) {
      assert.deepEqual((await audit(page)).filter((fault) => !ofScalar.test(fault)), [], look + place);
    }
  }
  assert.equal(await page.title(), "TenantDesk API");
  assert.deepEqual(elsewhere, [], look);
  assert.deepEqual(complaints, [], look);
  await context.close();
}

async function withoutScript() {
  const context = await newContext(browser, { javaScriptEnabled: false });
  const page = await context.newPage();
  await page.goto(`${server.url}/v1/docs`);
  for (const link of await page.getByRole("link").all()) {
    const answer = await context.request.get(new URL(await link.getAttribute("href"), page.url()).href);
    assert.equal(answer.status(), 200);
  }
  assert.equal(await page.getByRole("link").count(), 4);
  await context.close();
}

// A visitor gives the key and sends a request. The key is gone with the tab.
async function testsARequest() {
  const context = await newContext(browser);
  const page = await context.newPage();
  await opened(page, "#tag/key/GET/whoami.php");
  await page.getByPlaceholder("Token").fill(server.key);
  await page.getByRole("button", { name: /Test Request.*whoami/ }).click();
  const sent = page.waitForResponse(`${server.url}/whoami.php`);
  await page.getByRole("button", { name: /^Send/ }).first().click();
  const answer = await sent;
  assert.equal(answer.status(), 200);
  assert.equal((await answer.json()).tenant, "acme");
  const kept = await page.evaluate(() => JSON.stringify([{ ...localStorage }, { ...sessionStorage }, document.cookie]));
  assert.ok(!kept.includes(server.key), kept);
  await page.close();
  const next = await context.newPage();
  await opened(next);
  assert.ok(!(await next.content()).includes(server.key));
  await context.close();
}

// A script of /docs has the panel's origin. Even beside a signed-in admin, it gets no form and no window of the panel.
async function staysOutOfThePanel() {
  const context = await newContext(browser);
  const panel = await context.newPage();
  await panel.goto(`${server.url}/api_keys.php`);
  await panel.getByLabel("Tenant").fill("acme");
  await panel.getByLabel("Password").fill(server.password);
  await panel.getByRole("button", { name: "Sign in" }).click();
  await panel.getByRole("button", { name: "Sign out" }).waitFor();
  const page = await context.newPage();
  await opened(page);
  const attempts = await page.evaluate(async () => {
    const body = new URLSearchParams({ action: "create", name: "stolen", scope: "customers:read", expires: "never" });
    const asked = await Promise.all([fetch("/api_keys.php"), fetch("/api_keys.php", { method: "POST", body })]);
    return asked.map((answer) => answer.status);
  });
  assert.deepEqual(attempts, [403, 403]);
  const opens = context.waitForEvent("page");
  const severed = page.evaluate(async () => {
    const other = open("/api_keys.php");
    while (!other.closed) await new Promise((done) => setTimeout(done, 20));
    return true;
  });
  await (await opens).getByRole("button", { name: "Sign out" }).waitFor();
  assert.ok(await severed, "the page cannot reach the panel's window");
  await context.close();
}
