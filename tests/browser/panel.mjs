// The panel in a real browser: one admin's whole visit, every state looked at on the way: nothing for axe-core, nothing
// beyond the page's edge, no request but the page's own.
//
//   node panel.mjs BINARY on|off     with or without JavaScript

import assert from "node:assert/strict";
import { createServer } from "node:http";
import { audit, newContext, overflow, startBrowser, startServer } from "./driver.mjs";

const [binary, javascript] = process.argv.slice(2);
const path = "/api_keys.php";

const server = await startServer(binary);
const address = server.url;
const newTenant = (name) => JSON.parse(server.run(["--json", "tenant", "create", name])).password;
const browser = await startBrowser(["--host-resolver-rules=MAP *.example 127.0.0.1"]);
const context = await newContext(browser, {
  javaScriptEnabled: javascript === "on",
  viewport: { width: 1280, height: 800 },
  timezoneId: "Asia/Kolkata",
  permissions: ["clipboard-read", "clipboard-write"],
});
const page = await context.newPage();

/** Asks the API with a key; the status and, of a refusal, the code. */
async function api(key, resource = "customers") {
  const reply = await fetch(`${address}/${resource}.php`, { headers: { Authorization: `Bearer ${key}` } });
  const body = await reply.json();
  return [reply.status, body.error?.code ?? "fine"];
}

const faults = [];
page.on("request", (request) => {
  const url = new URL(request.url());
  const own = url.origin === address && url.pathname === path;
  if (!own && url.protocol !== "data:") faults.push(`the page asked for ${request.url()}`);
});
page.on("console", (message) => {
  // A refusal's status is reported as an error too; the policy's reports are what counts.
  if (message.type() === "error" && !message.text().startsWith("Failed to load resource")) faults.push(message.text());
});
page.on("pageerror", (error) => faults.push(String(error)));

const outsideOfTheirCards = () => page.evaluate(() => [...document.querySelectorAll(".sheet td *, .sheet dd *, .sheet p *, .sheet li *")]
  .filter((one) => !one.closest(".visually-hidden") && one.getBoundingClientRect().right > one.closest(".sheet").getBoundingClientRect().right + 1)
  .map((one) => one.outerHTML));

/** Looks at a state of the page: its access, its width, in every size and both lights. */
async function look(state) {
  // The colours depend on the light alone, the layout on the width alone.
  for (const [width, colorScheme] of [[1280, "light"], [800, "light"], [320, "dark"], [390, "dark"]]) {
    await page.emulateMedia({ colorScheme });
    await page.setViewportSize({ width, height: 800 });
    const where = `${state}, ${width} wide, ${colorScheme}`;
    assert.deepEqual(await overflow(page), [], where);
    assert.deepEqual(await outsideOfTheirCards(), [], where);
    // Without JavaScript axe cannot run either; the pages are the same.
    if (javascript === "on" && (width === 1280 || width === 390)) assert.deepEqual(await audit(page), [], where);
  }
  await page.setViewportSize({ width: 1280, height: 800 });
}

/** Presses a button or follows a link, and waits for the page after. */
async function go(role, name, within = page) {
  const loaded = page.waitForEvent("load");
  await within.getByRole(role, { name, exact: true }).click();
  await loaded;
}

const answers = (status) => page.waitForResponse((response) => response.status() === status);
const row = (name) => page.getByRole("row").filter({ hasText: name });

async function signIn(tenant, password) {
  await page.getByLabel("Tenant").fill(tenant);
  await page.getByLabel("Password").fill(password);
  await go("button", "Sign in");
}

async function newKey() {
  await page.goto(address + path);
  await go("button", "New key");
}

async function createKey(name, scopes) {
  await newKey();
  await page.getByLabel("Name").fill(name);
  for (const scope of scopes) await page.getByLabel(scope).check();
  await go("button", "Create key");
  return (await page.locator("#secret").textContent()).trim();
}

/** A page of its own for what has none of ours to stand on. */
async function refusals() {
  await newKey();
  await page.evaluate(() => {
    const name = document.querySelector("#name");
    name.removeAttribute("maxlength");
    name.value = "x".repeat(20_000);
  });
  await Promise.all([answers(413), go("button", "Create key")]);
  await look("too-large");
  await go("link", "Back to the API keys");
}

async function visit() {
  const password = newTenant("shop");
  await page.goto(address + path);
  await look("sign-in");
  await Promise.all([answers(401), signIn("shop", "not the password")]);
  assert.equal(await page.getByLabel("Tenant").inputValue(), "shop");
  await look("sign-in-wrong");
  await signIn("shop", password);
  assert.match(page.url(), /\/api_keys\.php$/);
  await page.getByRole("heading", { name: "No keys yet" }).waitFor();
  await look("empty");

  const session = (await context.cookies()).find((cookie) => cookie.name === "tenantdesk-session");
  assert.ok(session.httpOnly && session.sameSite === "Strict" && session.path === "/" && !session.secure);

  const key = await createKey("Web shop", ["Read customers", "Write customers"]);
  assert.match(key, /^tdk_[A-Za-z0-9_-]{43}$/);
  await look("new-key");
  const curl = `curl -H "Authorization: Bearer ${key}" ${address}/whoami.php`;
  assert.equal(await page.locator("#curl").textContent(), curl);
  for (const [name, text] of [["Copy", key], ["Copy command", curl]]) {
    const copy = page.getByRole("button", { name, exact: true });
    if (javascript === "on") {
      await copy.click();
      await page.getByRole("button", { name: "Copied" }).waitFor();
      await page.getByRole("status").getByText("Copied").waitFor();
      await copy.waitFor();
      assert.equal(await page.evaluate(() => navigator.clipboard.readText()), text);
    } else {
      assert.equal(await copy.count(), 0, "no copy button without JavaScript");
    }
  }
  const again = page.waitForEvent("load");
  if (javascript === "on") {
    // A step back, as the browser's cache of pages makes it. Playwright turns this cache off.
    await page.evaluate(() => dispatchEvent(new PageTransitionEvent("pageshow", { persisted: true })));
  } else {
    await page.reload();
  }
  await again;
  assert.ok(!(await page.content()).includes(key), "the key is shown once");
  assert.equal(await page.getByRole("row").count(), 2, "reloading made no second key");
  await look("shown-once");

  await row("Web shop").getByRole("cell", { name: "never" }).waitFor();
  assert.deepEqual(await api(key), [200, "fine"]);
  assert.deepEqual(await api(key, "hardware"), [403, "insufficient_scope"]);
  await page.goto(address + path);
  const used = row("Web shop").getByRole("cell").nth(1).locator("time");
  const utc = `${(await used.getAttribute("datetime")).slice(0, 16).replace("T", " ")} UTC`;
  assert.match(await used.textContent(), /^\d minutes? ago$/);
  if (javascript === "on") {
    const local = new Date(Date.parse(await used.getAttribute("datetime")) + 5.5 * 3_600_000).toISOString();
    assert.equal(await used.getAttribute("title"), `${local.slice(0, 10)} ${local.slice(11, 16)} (${utc})`);
  } else {
    assert.equal(await used.getAttribute("title"), utc);
  }

  await shortcuts();
  await mistakes();
  await endsAndReplacement();
  await look("list");
  await refusals();
  await revokeAndDelete(key);
  await changePassword(password);
  await suspended();
  await manyKeys();
  await tooMany();
  await foreignPages();
}

/** An admin who is signed in presses a button of another page. Over HTTP, browsers send `Sec-Fetch-Site` to this machine alone. */
async function foreignPages() {
  const password = newTenant("target");
  const { port } = new URL(address);
  const fields = { create: { name: "stolen", scope: "all", expires: "never" }, "sign-in": { tenant: "target", password } };
  const trap = createServer((request, response) => {
    const [, host, action] = request.url.split("/");
    const inputs = Object.entries({ action, ...fields[action] }).map(([name, value]) => `<input name="${name}" value="${value}">`);
    response.setHeader("Content-Type", "text/html");
    response.end(`<form method="post" action="http://${host}:${port}${path}">${inputs.join("")}<button>Win</button></form>`);
  });
  await new Promise((listening) => trap.listen(0, "127.0.0.1", listening));
  for (const host of ["127.0.0.1", "desk.example"]) {
    for (const trapHost of ["127.0.0.1", "desk.example", "www.desk.example", "evil.example"]) {
      const visitor = await newContext(browser, { javaScriptEnabled: javascript === "on" });
      const visited = await visitor.newPage();
      await visited.goto(`http://${host}:${port}${path}`);
      await visited.getByLabel("Tenant").fill("target");
      await visited.getByLabel("Password").fill(password);
      await visited.getByRole("button", { name: "Sign in" }).click();
      await visited.getByRole("heading", { name: "No keys yet" }).waitFor();
      for (const action of ["create", "sign-in"]) {
        await visited.goto(`http://${trapHost}:${trap.address().port}/${host}/${action}`);
        await visited.getByRole("button", { name: "Win" }).click();
        await visited.getByText("does not say that this form came from this page").waitFor();
      }
      await visited.goto(`http://${host}:${port}${path}`);
      await visited.getByRole("heading", { name: "No keys yet" }).waitFor();
      await visitor.close();
    }
  }
  trap.close();
}

async function shortcuts() {
  const ticked = () => page.locator("[name=scope]:checked").count();
  const press = (name) => page.getByRole("button", { name, exact: true }).click();
  await newKey();
  await look("new");
  await page.getByLabel("Name").fill("Import");
  if (javascript === "on") {
    await press("All");
    assert.equal(await ticked(), 6);
    await press("Read only");
    assert.equal(await ticked(), 3);
  } else {
    assert.equal(await page.getByRole("button", { name: "All" }).count(), 0, "no shortcut without JavaScript");
    await page.getByLabel("Read customers").check();
  }
  const loaded = page.waitForEvent("load");
  await page.getByLabel("Name").press("Enter");
  await loaded;
  assert.match(await page.locator("#secret").textContent(), /^tdk_/);
}

async function mistakes() {
  await newKey();
  await page.getByLabel("Name").fill("<b>\u202ebold\u202c</b> & \"quotes\" ".repeat(3));
  await Promise.all([answers(422), go("button", "Create key")]);
  await page.getByText("Select at least one scope.").waitFor();
  await look("form-wrong");
  await page.getByLabel("Read hardware").check();
  await go("button", "Create key");
  await page.goto(address + path);
  assert.equal(await page.locator("tbody b").count(), 0, "a name is text");
  await row("\\u{202e}bold").waitFor();
  await createKey("A long-winded name of a key ".repeat(3), ["Read customers", "Read employees"]);
}

async function endsAndReplacement() {
  const end = page.getByLabel("Expires", { exact: true });
  const date = page.getByLabel("Date", { exact: true });
  await newKey();
  assert.equal(await end.inputValue(), "1y");
  const create = async (day) => {
    await page.getByLabel("Name", { exact: true }).fill("Audit");
    await page.getByLabel("Read customers").check();
    await end.selectOption("On a date");
    await date.fill(day);
    await go("button", "Create key");
  };
  assert.equal(await date.isVisible(), javascript === "off", "the script shows the date where it is needed");
  await Promise.all([answers(422), create("2020-01-31")]);
  await page.getByText("This date is in the past.").waitFor();
  await look("end-wrong");
  await create("2999-06-30");
  const old = (await page.locator("#secret").textContent()).trim();
  // In India, the last minute of this day in UTC is on the next day.
  const expires = "2999-06-30";
  await page.goto(address + path);
  await row("Audit").getByText(expires).waitFor();
  await go("link", "Audit");
  await page.getByLabel("Requests a minute").fill("0");
  await Promise.all([answers(422), go("button", "Save")]);
  await page.getByText("Enter a number from 1 to 1000000").waitFor();
  await look("edit-wrong");
  await page.getByLabel("Requests a minute").fill("500");
  await page.getByLabel("Name").fill("Yearly audit");
  await go("button", "Save");
  await page.getByText("“Yearly audit” is changed.").waitFor();
  await row("Yearly audit").getByText(expires).waitFor();
  await go("link", "Yearly audit");
  await look("edit");
  await go("button", "Replace");
  await look("replace");
  await page.getByLabel("The old key expires").selectOption("In a week");
  await go("button", "Replace key");
  const next = (await page.locator("#secret").textContent()).trim();
  await page.getByText(/The old key, number \d+, works until \d{4}-/).waitFor();
  await look("new-key-of-a-replacement");
  assert.deepEqual([await api(old), await api(next)], [[200, "fine"], [200, "fine"]]);
  await page.goto(address + path);
  assert.equal(await row("Yearly audit").count(), 2);
  await row("Yearly audit").first().getByText("500 requests a minute").waitFor();
  await look("replaced");
  await go("link", "Yearly audit", row("Yearly audit").first());
  await go("button", "Replace");
  await page.getByLabel("The old key expires").selectOption("At once");
  await go("button", "Replace key");
  assert.deepEqual(await api(next), [401, "expired_api_key"]);
  await page.goto(address + path);
  assert.equal(await row("Expired").count(), 1);
}

async function revokeAndDelete(key) {
  await go("link", "Revoke Web shop");
  await look("confirm-revoke");
  await go("link", "Cancel");
  assert.deepEqual(await api(key), [200, "fine"]);
  await go("link", "Revoke Web shop");
  await go("button", "Revoke key");
  await page.getByText("“Web shop” is revoked.").waitFor();
  assert.deepEqual(await api(key), [401, "revoked_api_key"]);
  await row("Web shop").getByText("Revoked").waitFor();
  await look("revoked");
  await go("link", "Delete Web shop");
  await look("confirm-delete");
  await go("button", "Delete key");
  assert.equal(await row("Web shop").count(), 0);
  assert.deepEqual(await api(key), [401, "invalid_api_key"]);
  await look("deleted");
  await go("link", "Activity");
  await page.getByText(javascript === "on" ? "Times are in the time zone Asia/" : "Times are in UTC.").waitFor();
  await look("activity");
  const events = await page.locator(".events li").allTextContents();
  assert.match(events[0], /\d\d:\d\d An admin at 127\.0\.0\.1 deleted key \d+ “Web shop”/);
}

async function changePassword(current) {
  const next = "correct horse battery staple";
  const fill = async (old, again) => {
    await page.getByLabel("Current password").fill(old);
    await page.getByLabel("New password", { exact: true }).fill(next);
    await page.getByLabel("Repeat the new password").fill(again);
    await go("button", "Change password");
  };
  await go("link", "Password");
  await look("password");
  await fill("not the current one", "something else");
  await look("password-wrong");
  await fill("not the current one", next);
  await page.getByText("This is not the current password.").waitFor();
  await fill(current, next);
  await page.getByText("The password is changed").waitFor();
  await look("password-changed");
  await signIn("shop", next);
  await page.goBack();
  await page.getByRole("button", { name: "Sign out", exact: true }).waitFor();
  assert.equal(await page.getByText("The password is changed").count(), 0, "no page repeats what was done");
  const stolen = await context.cookies();
  await go("button", "Sign out");
  await page.getByText("You are signed out.").waitFor();
  await look("signed-out");
  await page.goBack();
  await page.getByRole("heading", { name: "Sign in" }).waitFor();
  assert.equal(await page.getByText("You are signed out.").count(), 0);
  await context.addCookies(stolen);
  await page.goto(address + path);
  await page.getByRole("heading", { name: "Sign in" }).waitFor();
}

async function suspended() {
  const password = newTenant("idle");
  server.run(["key", "create", "idle", "--name", "Nightly import", "--scope", "all"]);
  server.run(["tenant", "suspend", "idle"]);
  await signIn("idle", password);
  await page.getByText("The operator has suspended this tenant.").waitFor();
  assert.equal(await page.getByRole("button", { name: "New key" }).count(), 0);
  await look("suspended");
  await go("button", "Sign out");
}

/** A long list stays usable. */
async function manyKeys() {
  const password = newTenant("chain");
  const scopes = ["all", "read", "customers:read,hardware:write", "customers:read,customers:write,employees:read,hardware:read"];
  for (let count = 0; count < 120; count += 1) {
    server.run(["key", "create", "chain", "--name", `Branch ${count}`, "--scope", scopes[count % 4], "--expires", "365d"]);
  }
  await signIn("chain", password);
  for (const width of [1280, 390]) {
    await page.setViewportSize({ width, height: 800 });
    const button = await page.getByRole("button", { name: "New key" }).boundingBox();
    assert.ok(button.y < 250, `New key is at ${button.y} px`);
  }
  const target = await page.getByRole("link", { name: "Revoke Branch 119" }).boundingBox();
  assert.ok(target.height >= 44 && target.width >= 44, JSON.stringify(target));
  await look("many");
  assert.equal(await page.getByRole("row").count(), 121);
  await go("button", "Sign out");
}

async function tooMany() {
  for (let count = 0; count < 5; count += 1) await signIn("nobody", "not the password");
  await Promise.all([answers(429), signIn("nobody", "not the password")]);
  await look("too-many");
}

try {
  await visit();
  assert.deepEqual(faults, []);
  console.log("panel: ok");
} catch (error) {
  console.error(`at ${page.url()}\n${error.stack}\n${faults.join("\n")}`);
  process.exitCode = 1;
} finally {
  await browser.close();
  await server.stop();
}
