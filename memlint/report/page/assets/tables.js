// Tables whose columns can be sorted: numbers by `data-key`, texts as they are read.
for (const table of document.querySelectorAll("table.sortable")) {
  const body = table.tBodies[0];
  [...table.tHead.rows[0].cells].forEach((head, column) => {
    if (head.classList.contains("barcell")) return;
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const isNumber = head.classList.contains("number");
      const before = head.getAttribute("aria-sort");
      const order = before === "none" || before === null ? (isNumber ? "descending" : "ascending")
        : before === "ascending" ? "descending" : "ascending";
      for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", order);
      const sign = order === "ascending" ? 1 : -1;
      const keyed = [...body.rows].map((row) => [row.cells[column], row]);
      keyed.sort(([a], [b]) => sign * (isNumber
        ? Number(a.dataset.key) - Number(b.dataset.key)
        : a.textContent.trim().localeCompare(b.textContent.trim(), "en", { numeric: true })));
      body.append(...keyed.map(([, row]) => row));
    });
  });
}

// A link to a row opens the folded section around the row.
function openTarget() {
  const target = location.hash.length > 1 ? document.getElementById(decodeURIComponent(location.hash.slice(1))) : null;
  for (let at = target; at; at = at.parentElement) if (at.tagName === "DETAILS") at.open = true;
  target?.scrollIntoView({ block: "center" });
}
addEventListener("hashchange", openTarget);
addEventListener("click", (event) => {
  const link = event.target.closest?.("a[href^='#']");
  if (link && link.hash === location.hash) openTarget();
});
openTarget();

// Print shows sections that are folded on the screen.
let unfolded = [];
addEventListener("beforeprint", () => {
  unfolded = [...document.querySelectorAll("details:not([open])")];
  for (const details of unfolded) details.open = true;
});
addEventListener("afterprint", () => {
  for (const details of unfolded) details.open = false;
});

// A box that does not scroll is not a stop of the Tab key.
const scrollers = new ResizeObserver((entries) => {
  for (const { target } of entries) {
    const scrolls = target.scrollWidth > target.clientWidth || target.scrollHeight > target.clientHeight;
    if (scrolls) target.tabIndex = 0;
    else target.removeAttribute("tabindex");
  }
});
for (const scroller of document.querySelectorAll(".wide, .scroll")) scrollers.observe(scroller);
