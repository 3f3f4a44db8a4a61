"use strict";
// The pages also work without this script. It shows local times, copies the new key, shows the date where it is needed,
// and ticks several checkboxes at once.
const minute = (at) => at.toISOString().slice(0, 16).replace("T", " ");
for (const time of document.querySelectorAll("time")) {
  const utc = new Date(time.dateTime);
  const local = minute(new Date(utc - utc.getTimezoneOffset() * 60_000));
  time.title = `${local} (${time.title})`;
  // A key that ends with a day in UTC has this day in every time zone: an admin chose the date.
  if (time.dateTime.endsWith("T23:59:59Z")) continue;
  if (time.textContent === minute(utc)) time.textContent = local;
  if (time.textContent === minute(utc).slice(0, 10)) time.textContent = local.slice(0, 10);
}
// A step back to this page does not tell again what was done, or show a new key again.
if (location.search.startsWith("?done=")) history.replaceState(null, "", location.pathname);
if (document.getElementById("secret")) addEventListener("pageshow", (event) => event.persisted && location.reload());

const zone = document.getElementById("zone");
if (zone) zone.textContent = `Times are in the time zone ${Intl.DateTimeFormat().resolvedOptions().timeZone}.`;

for (const button of document.querySelectorAll("[data-copy]")) {
  const label = button.textContent;
  button.hidden = false;
  button.addEventListener("click", () => {
    getSelection().selectAllChildren(document.getElementById(button.dataset.copy));
    // `navigator.clipboard` would need HTTPS.
    button.textContent = document.execCommand("copy") ? "Copied" : "Please copy the selected text";
    document.getElementById("copied").textContent = button.textContent;
    setTimeout(() => { button.textContent = label; }, 3_000);
  });
}

const end = document.getElementById("expires");
if (end) {
  const date = document.getElementById("date");
  const showDate = () => {
    date.disabled = end.value !== "date";
    date.parentElement.hidden = date.disabled;
  };
  showDate();
  end.addEventListener("change", showDate);
  // A browser may restore the selection when it goes back to the page.
  addEventListener("pageshow", showDate);
}

for (const button of document.querySelectorAll("[data-select]")) {
  button.parentElement.hidden = false;
  button.addEventListener("click", () => {
    for (const box of button.form.elements.scope) box.checked = box.value.endsWith(button.dataset.select);
  });
}
