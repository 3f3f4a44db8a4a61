// What the tests in a real browser share: the binary on a port of its own, Debian's Chromium, and axe-core.
//
// Needs: npm install (in this directory), /usr/bin/chromium or CHROMIUM, and the path of the binary as the first argument of
// each script:   node docs.mjs ../../target/debug/tenantdesk
//
//   const server = await startServer(binary)     the server with a tenant "acme" on an empty data directory;
//                                            server.url, server.key, server.password, server.run([arguments]), await server.stop()
//   const browser = await startBrowser()     playwright's Browser; await browser.close()
//   await newContext(browser, options)       playwright's BrowserContext, which gives a busy machine time
//   await audit(page)                        what axe-core finds, as lines of text; empty is good
//   await overflow(page)                     elements that make the page scroll sideways; empty is good

import { execFileSync, spawn } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { chromium } from "playwright-core";

const require = createRequire(import.meta.url);

export async function startServer(binary, options = []) {
  const directory = mkdtempSync(join(tmpdir(), "tenantdesk-"));
  const data = join(directory, "data");
  const run = (parameters) => execFileSync(binary, ["--data-dir", data, ...parameters], { encoding: "utf8", stdio: ["ignore", "pipe", "pipe"] });
  const { password } = JSON.parse(run(["--json", "tenant", "create", "acme"]));
  const key = run(["key", "create", "acme", "--name", "tests", "--scope", "all"]).trim();
  const parameters = ["--data-dir", data, "serve", "--listen", "127.0.0.1:0", "--rate-limit", "1000000", ...options];
  const server = spawn(binary, parameters, { stdio: ["ignore", "pipe", "ignore"] });
  const url = await new Promise((resolve, reject) => {
    let text = "";
    server.stdout.on("data", (piece) => {
      text += piece;
      const found = /listening on (http\S+)/.exec(text);
      if (found) resolve(found[1]);
    });
    server.on("exit", (code) => reject(new Error(`the server ended with ${code}`)));
  });
  const stop = async () => {
    const ended = new Promise((resolve) => server.once("exit", resolve));
    server.kill("SIGTERM");
    await ended;
    rmSync(directory, { recursive: true, force: true });
  };
  return { url, key, password, run, stop };
}

export function startBrowser(options = []) {
  return chromium.launch({
    executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
    args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
      "--disable-component-update", "--disable-sync", ...options],
  });
}

export async function newContext(browser, options = {}) {
  const context = await browser.newContext(options);
  context.setDefaultTimeout(120_000);
  return context;
}

// axe runs in a world of its own, so that the page's policy stays as it is.
export async function audit(page) {
  const source = readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");
  const client = await page.context().newCDPSession(page);
  const { frameTree } = await client.send("Page.getFrameTree");
  const { executionContextId } = await client.send("Page.createIsolatedWorld", { frameId: frameTree.frame.id });
  const evaluate = async (expression) => {
    const answer = await client.send("Runtime.evaluate",
      { expression, contextId: executionContextId, awaitPromise: true, returnByValue: true });
    if (answer.exceptionDetails) throw new Error(answer.exceptionDetails.exception?.description ?? "axe failed");
    return answer.result.value;
  };
  await evaluate(`${source}; undefined`);
  return evaluate(`axe.run(document, { resultTypes: ["violations"] }).then(({ violations }) => violations.flatMap(
    (rule) => rule.nodes.map((node) => rule.id + ": " + node.target.join(" ") + ": " + node.failureSummary)))`);
}

export function overflow(page) {
  return page.evaluate(() => {
    const edge = document.documentElement.clientWidth;
    if (document.documentElement.scrollWidth <= edge) return [];
    return [...document.querySelectorAll("body *")].filter((element) => element.getBoundingClientRect().right > edge + 1)
      .map((element) => `${element.tagName} ${element.className}`).slice(0, 10);
  });
}
