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

const copy = document.getElementById("copy");
if (copy) {
  copy.hidden = false;
  copy.addEventListener("click", () => {
    getSelection().selectAllChildren(document.getElementById("secret"));
    // `navigator.clipboard` would need HTTPS.
    const copied = document.execCommand("copy");
    document.getElementById("copied").textContent = copied ? "Copied." : "Please copy the selected text.";
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
}

for (const button of document.querySelectorAll("[data-select]")) {
  button.addEventListener("click", (event) => {
    event.preventDefault();
    for (const box of button.form.elements.scope) box.checked = box.value.endsWith(button.dataset.select);
  });
}
