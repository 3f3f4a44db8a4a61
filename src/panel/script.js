"use strict";
// The page works without this: it copies the new key and ticks boxes without a round trip.
for (const button of document.querySelectorAll("[data-copy]")) {
  const source = document.getElementById(button.dataset.copy);
  const told = document.getElementById("copied");
  button.hidden = false;
  button.addEventListener("click", async () => {
    getSelection().selectAllChildren(source);
    let copied = false;
    try {
      await navigator.clipboard.writeText(source.textContent);
      copied = true;
    } catch {
      // Without HTTPS a browser has no clipboard to write to, only the selection.
      copied = document.execCommand("copy");
    }
    told.textContent = copied ? "Copied." : "Please copy the marked text.";
  });
}
for (const button of document.querySelectorAll("[data-select]")) {
  button.addEventListener("click", (event) => {
    event.preventDefault();
    for (const box of button.form.elements.scope) box.checked = box.value.endsWith(button.dataset.select);
  });
}
