// Copies commands, and sends a form when a choice changes. The pages work without it.
document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-copy]");
  if (!button) return;
  navigator.clipboard.writeText(button.dataset.copy).then(() => {
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  });
});
document.addEventListener("change", (event) => {
  const select = event.target.closest("select[data-submit]");
  if (!select) return;
  // A later choice depends on the earlier ones.
  const selects = [...select.form.querySelectorAll("select[data-submit]")];
  if (select.name !== "label" && select.form.action.endsWith("/compare"))
    for (const later of selects.slice(selects.indexOf(select) + 1)) later.disabled = true;
  select.form.requestSubmit();
});
// Commands in reports get a button, too: measuring starts in a terminal.
const addCopyButtons = (root) => {
  for (const code of root.querySelectorAll(".unknown code")) {
    if (!code.textContent.startsWith("advisor ") || code.nextElementSibling?.matches("[data-copy]")) continue;
    const button = document.createElement("button");
    button.type = "button"; button.className = "plain"; button.textContent = "Copy"; button.dataset.copy = code.textContent;
    code.after(" ", button);
  }
};
addCopyButtons(document);
document.addEventListener("htmx:afterSwap", () => addCopyButtons(document));
