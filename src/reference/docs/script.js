"use strict";
// The page is whole without this script. It adds: search, copying, a form that sends requests, the language kept in the address.
const all = (selector, within = document) => [...within.querySelectorAll(selector)];
const one = (selector, within = document) => within.querySelector(selector);

// Search: a part that has every word stays, with its chapter; an empty search shows everything.
const search = one("#search");
const overview = ".chapter > .pair:not(.operation)";
const parts = all(`.topic, .operation, .errors > div, ${overview}`);
const texts = new Map(parts.map((part) => [part, (part.id + " " + part.textContent).toLowerCase()]));
const chapters = all(".chapter").filter((chapter) => chapter.id !== "try");
const found = one("#found");
one(".search").hidden = false;
search.addEventListener("input", () => {
  const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
  let count = 0;
  for (const part of parts) {
    part.hidden = !words.every((word) => texts.get(part).includes(word));
    if (!part.hidden) count += 1;
  }
  for (const chapter of chapters) {
    chapter.hidden = words.length > 0 && parts.every((part) => part.hidden || !chapter.contains(part));
  }
  for (const link of all(".contents li li a")) {
    const target = document.getElementById(link.hash.slice(1));
    link.parentElement.hidden = Boolean(target && target.closest("[hidden]"));
  }
  found.hidden = words.length === 0;
  found.textContent = count === 0 ? "Nothing has these words." : `${count} ${count === 1 ? "place has" : "places have"} these words.`;
});
addEventListener("keydown", (event) => {
  if (event.key === "/" && !event.target.closest("input, textarea, select")) {
    event.preventDefault();
    search.focus();
  } else if (event.key === "Escape" && event.target === search) {
    search.value = "";
    search.dispatchEvent(new Event("input"));
  }
});
// A link to something that the search has hidden ends the search.
addEventListener("hashchange", () => {
  const target = document.getElementById(location.hash.slice(1));
  if (target && target.closest("[hidden]")) {
    search.value = "";
    search.dispatchEvent(new Event("input"));
    target.scrollIntoView();
  }
});

// Copying.
for (const figure of all(".code:not(#try .code)")) {
  const code = one("code", figure);
  if (!code || !one("pre", figure)) continue;
  const button = document.createElement("button");
  button.type = "button";
  button.className = "copy";
  button.textContent = "Copy";
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(code.textContent);
      button.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(code);
      button.textContent = "Selected";
    }
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  });
  one("figcaption", figure).append(button);
}

// The form. The key is in its input and nowhere else.
const form = one(".try");
one("#try").hidden = one(".try-link").hidden = false;
for (const button of all(".fill")) {
  button.hidden = false;
  button.addEventListener("click", () => {
    one("#try-method").value = button.dataset.method;
    one("#try-target").value = button.dataset.target;
    one("#try-body").value = button.dataset.body;
    location.hash = "try";
    one("#try-key").focus();
  });
}
form.addEventListener("submit", async (event) => {
  event.preventDefault();
  const method = one("#try-method").value;
  const headers = { Authorization: `Bearer ${one("#try-key").value.trim()}` };
  const writes = method === "POST" || method === "PUT";
  if (writes) headers["Content-Type"] = "application/json";
  const figure = one(".answer", form);
  let status;
  let text = "";
  try {
    const url = new URL(one("#try-target").value, location.origin);
    if (url.origin !== location.origin) throw new Error("The path must begin with one slash.");
    const response = await fetch(url, { method, headers, body: writes ? one("#try-body").value : undefined });
    status = `${response.status} ${response.statusText}`;
    text = await response.text();
    try {
      text = JSON.stringify(JSON.parse(text), null, 2);
    } catch {
      // Not JSON: shown as it came.
    }
  } catch (error) {
    status = `Not sent: ${error.message}`;
  }
  one("#try-status").textContent = status;
  one("#try-answer").textContent = text || "No body.";
  figure.hidden = false;
});
