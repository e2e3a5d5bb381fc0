// A field above the tables of error codes: rows without its words are hidden, and sections without rows.
document.addEventListener("DOMContentLoaded", () => {
  const page = document.querySelector(".md-content article");
  if (!page || !location.pathname.endsWith("/errors.html")) return;
  const field = Object.assign(document.createElement("input"), { type: "search", className: "page-filter", placeholder: "Filter: a code, or words" });
  field.setAttribute("aria-label", "Filter the error codes");
  page.querySelector("h2").before(field);
  field.addEventListener("input", () => {
    const words = field.value.toLowerCase().split(/\s+/);
    const fits = (row) => words.every((word) => row.textContent.toLowerCase().includes(word));
    for (const heading of page.querySelectorAll("h2")) {
      let at = heading.nextElementSibling, found = 0;
      for (; at && at.tagName !== "H2"; at = at.nextElementSibling) {
        for (const row of at.querySelectorAll("tbody tr")) found += !(row.hidden = !fits(row));
      }
      const isEmpty = !found && field.value.trim() !== "";
      for (at = heading; at && (at === heading || at.tagName !== "H2"); at = at.nextElementSibling) at.hidden = isEmpty;
    }
  });
});
