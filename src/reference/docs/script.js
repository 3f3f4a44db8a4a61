"use strict";
// The page is whole without this script. It sets the address in the examples, copies them, searches, and marks the section
// that is in view.
const first = document.querySelector("#start pre code");
first.textContent = first.textContent.replace("http://127.0.0.1:8080", location.href.replace(/\/docs([?#].*)?$/, ""));

// Browsers permit copying only over HTTPS and on the own machine.
for (const code of navigator.clipboard ? document.querySelectorAll(".code code") : []) {
  const button = document.createElement("button");
  button.className = "copy";
  button.textContent = "Copy";
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(code.textContent);
    button.textContent = "Copied";
  });
  code.closest("figure").querySelector("figcaption").append(button);
}

const contents = document.querySelector(".contents");
const entries = Array.from(contents.querySelectorAll("li li"), (entry) => {
  const section = document.getElementById(entry.firstElementChild.hash.slice(1));
  return { entry, section, text: section.textContent.toLowerCase() };
});
const [search, found] = contents.children;
search.hidden = false;
search.addEventListener("input", () => {
  const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
  for (const { entry, text } of entries) entry.hidden = !words.every((word) => text.includes(word));
  contents.classList.toggle("searching", words.length > 0);
  found.value = words.length ? `${contents.querySelectorAll("li li:not([hidden])").length} found` : "";
});
search.addEventListener("keydown", (event) => {
  if (event.key === "Enter") contents.querySelector("li li:not([hidden]) a")?.click();
});

const inView = new IntersectionObserver((changed) => {
  for (const { target } of changed.filter((change) => change.isIntersecting)) {
    contents.querySelector("[aria-current]")?.removeAttribute("aria-current");
    const link = contents.querySelector(`[href="#${target.id}"]`);
    link.setAttribute("aria-current", "true");
    contents.scrollTop = link.offsetTop - contents.clientHeight / 2;
  }
}, { rootMargin: "-80px 0px -75%" });
for (const section of document.querySelectorAll("#start, .topic, .fields[id], .operation, #errors")) inView.observe(section);
