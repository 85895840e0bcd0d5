// The page is readable without this script, which adds a filter above long tables.
for (const table of document.querySelectorAll("table[data-filter]")) {
  const input = document.createElement("input");
  input.className = "filter"; input.type = "search";
  input.placeholder = input.ariaLabel = "filter " + table.dataset.filter;
  input.addEventListener("input", () => {
    const word = input.value.trim().toLowerCase();
    for (const row of table.tBodies[0].rows) row.hidden = !row.textContent.toLowerCase().includes(word);
  });
  table.parentElement.before(input);
}
