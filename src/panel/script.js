"use strict";
// The pages also work without this script. It shows local times, copies the new key, shows the date where it is needed,
// and ticks checkboxes without a round trip.
for (const time of document.querySelectorAll("time")) {
  const at = new Date(time.dateTime);
  time.title = time.textContent;
  const local = new Date(at - at.getTimezoneOffset() * 60_000).toISOString();
  time.children[0].textContent = local.slice(0, 10);
  time.children[1].textContent = local.slice(11, 16);
}
const zone = document.getElementById("zone");
if (zone) zone.textContent = `Times are in the time zone ${Intl.DateTimeFormat().resolvedOptions().timeZone}.`;
for (const button of document.querySelectorAll("[data-copy]")) {
  const source = document.getElementById(button.dataset.copy);
  const status = document.getElementById("copied");
  button.hidden = false;
  button.addEventListener("click", async () => {
    getSelection().selectAllChildren(source);
    let copied = false;
    try {
      await navigator.clipboard.writeText(source.textContent);
      copied = true;
    } catch {
      // Without HTTPS browsers provide no clipboard API, only the selection.
      copied = document.execCommand("copy");
    }
    status.textContent = copied ? "Copied." : "Please copy the selected text.";
  });
}
const end = document.getElementById("expires");
if (end) {
  const date = document.getElementById("date");
  const showDate = () => {
    date.disabled = end.value !== "date";
    date.parentElement.hidden = date.disabled;
  };
  end.addEventListener("change", showDate);
  // A browser may restore the selection when it goes back to the page.
  addEventListener("pageshow", showDate);
  showDate();
}
for (const button of document.querySelectorAll("[data-select]")) {
  button.addEventListener("click", (event) => {
    event.preventDefault();
    for (const box of button.form.elements.scope) box.checked = box.value.endsWith(button.dataset.select);
  });
}
