"use strict";
// The page is whole without this script, which adds buttons that copy. Browsers permit that only
// over HTTPS and on the own machine.
for (const code of navigator.clipboard ? document.querySelectorAll(".code code") : []) {
  const button = document.createElement("button");
  button.type = "button";
  button.className = "copy";
  button.textContent = "Copy";
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(code.textContent);
    button.textContent = "Copied";
  });
  code.closest("figure").querySelector("figcaption").append(button);
}
