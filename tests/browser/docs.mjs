// /docs in a real browser: nothing for axe-core, nothing beyond the page's edge, no request but the page's own, whole
// without JavaScript; copying, searching and finding one's way work.
//
//   node docs.mjs BINARY [DIRECTORY FOR SCREENSHOTS]

import assert from "node:assert/strict";
import { join } from "node:path";
import { audit, forEachLook, overflow, startBrowser, startServer } from "./driver.mjs";

const [binary, directory] = process.argv.slice(2);
const server = await startServer(binary);
const browser = await startBrowser();
try {
  await forEachLook(browser, looks);
  await withoutScript();
  await findsItsWay();
  await withScript();
  console.log("docs: ok");
} finally {
  await browser.close();
  await server.stop();
}

async function looks(page, look) {
  const asked = [];
  const complaints = [];
  page.on("request", (request) => asked.push(request.url()));
  page.on("console", (message) => complaints.push(message.text()));
  page.on("pageerror", (error) => complaints.push(String(error)));
  await page.goto(`${server.url}/docs`);
  if (directory) {
    await page.screenshot({ path: join(directory, `docs-${look.name}-top.png`) });
    for (const place of ["customers", "getCustomers", "runBatch", "errors"]) {
      await page.evaluate((id) => document.getElementById(id).scrollIntoView({ behavior: "instant" }), place);
      await page.screenshot({ path: join(directory, `docs-${look.name}-${place}.png`) });
    }
  }
  assert.deepEqual(await audit(page), [], look.name);
  assert.deepEqual(await overflow(page), [], look.name);
  assert.deepEqual(complaints, [], look.name);
  assert.deepEqual(asked.filter((url) => !url.startsWith("data:")), [`${server.url}/docs`], look.name);
}

// Searching leaves the entries of the contents that have all the words; the entry of the section in view is marked; jumps are
// instant; on a phone a link leads back to the contents.
async function findsItsWay() {
  const page = await browser.newPage({ viewport: { width: 390, height: 900 } });
  await page.goto(`${server.url}/docs`);
  const entries = page.locator(".contents li li:visible");
  await page.getByLabel("Search the reference").fill("asset_tag serial_number");
  assert.deepEqual(new Set(await entries.locator("a").evaluateAll((links) => links.map((link) => link.hash))),
    new Set(["#hardware-fields", "#createHardware", "#getHardware", "#updateHardware", "#runBatch"]));
  await page.getByLabel("Search the reference").fill("idempotency reused");
  await page.screenshot(directory ? { path: join(directory, "docs-search.png") } : {});
  assert.equal(await page.locator(".contents output").textContent(), `${await entries.count()} found`);
  await page.getByLabel("Search the reference").fill("not_in_list");
  await page.keyboard.press("Enter");
  assert.equal(new URL(page.url()).hash, "#not_in_list");
  assert.ok(await page.evaluate(() => scrollY > 10_000), "the jump is over at once");
  await page.locator(".up").click();
  assert.equal(await page.evaluate(() => scrollY), 0);
  await page.goto(`${server.url}/docs#runBatch`);
  await page.locator(".contents [aria-current][href='#runBatch']").waitFor({ state: "attached" });
  await page.close();
}

async function withoutScript() {
  const context = await browser.newContext({ javaScriptEnabled: false });
  const page = await context.newPage();
  await page.goto(`${server.url}/docs`);
  for (const id of ["createCustomer", "getHardware", "rate_limited", "too_long"]) {
    assert.equal(await page.locator(`#${id}`).count(), 1, id);
  }
  assert.equal(await page.locator(".copy").count(), 0, "what needs the script is not there");
  await context.close();
}

async function withScript() {
  const context = await browser.newContext({ permissions: ["clipboard-read", "clipboard-write"] });
  const page = await context.newPage();
  await page.goto(`${server.url}/v1/docs`);
  await page.locator("#createCustomer .copy").first().click();
  await page.locator("#createCustomer .copy", { hasText: "Copied" }).waitFor();
  const copied = await page.evaluate(() => navigator.clipboard.readText());
  assert.ok(copied.includes('curl -X POST "$TENANTDESK_URL/customers.php"'), copied);
  const first = await page.locator("#start pre code").first().textContent();
  assert.ok(first.startsWith(`export TENANTDESK_URL=${server.url}/v1\n`), first);
  await context.close();
}
