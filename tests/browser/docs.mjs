// /docs in a real browser: nothing for axe-core, nothing beyond the page's edge, no request but the page's own, whole
// without JavaScript; search, language, copying and the form work.
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
    for (const place of ["customers", "createHardware", "errors", "try"]) {
      await page.evaluate((id) => document.getElementById(id).scrollIntoView({ behavior: "instant" }), place);
      await page.screenshot({ path: join(directory, `docs-${look.name}-${place}.png`) });
    }
  }
  assert.deepEqual(await audit(page), [], look.name);
  assert.deepEqual(await overflow(page), [], look.name);
  assert.deepEqual(complaints, [], look.name);
  assert.deepEqual(asked.filter((url) => !url.startsWith("data:")), [`${server.url}/docs`], look.name);
}

async function withoutScript() {
  const context = await browser.newContext({ javaScriptEnabled: false });
  const page = await context.newPage();
  await page.goto(`${server.url}/docs`);
  for (const id of ["createCustomer", "headHardware", "rate_limited", "too_long"]) {
    assert.equal(await page.locator(`#${id}`).count(), 1, id);
  }
  assert.equal(await page.locator("#search").isVisible(), false, "what needs the script is not shown");
  assert.equal(await page.locator("#try").isVisible(), false);
  assert.equal(await page.locator("#createCustomer .curl").isVisible(), true);
  assert.equal(await page.locator("#createCustomer .python").isVisible(), false);
  await page.locator("#in-python").check({ force: true });
  assert.equal(await page.locator("#createCustomer .python").isVisible(), true, "the language needs no script");
  await context.close();
}

async function withScript() {
  const context = await browser.newContext({ permissions: ["clipboard-read", "clipboard-write"] });
  const page = await context.newPage();
  await page.goto(`${server.url}/v1/docs`);
  await page.keyboard.press("/");
  await page.keyboard.type("hardware warranty");
  assert.match(await page.locator("#found").textContent(), /place/);
  assert.equal(await page.locator("#rate_limited").isVisible(), false);
  await page.goto(`${server.url}/v1/docs#rate_limited`);
  assert.equal(await page.locator("#rate_limited").isVisible(), true, "a link ends the search");
  await page.locator("#createCustomer .curl .copy").click();
  const copied = await page.evaluate(() => navigator.clipboard.readText());
  assert.ok(copied.startsWith(`curl -X POST '${server.url}/v1/customers.php'`), copied);
  await page.locator("#createCustomer .fill").click();
  await page.locator("#try-key").fill(server.key);
  await page.locator("#try button.primary").click();
  await page.locator("#try-status", { hasText: "201" }).waitFor();
  assert.equal(JSON.parse(await page.locator("#try-answer").textContent()).id, 1);
  await context.close();
}
