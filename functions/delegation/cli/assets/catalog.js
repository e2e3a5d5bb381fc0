"use strict";
// The views of a catalog: its audit, the health of its tables, and the upkeep of one table. app.js has what they use.
const cents = { minimumFractionDigits: 2, maximumFractionDigits: 2 };
const money = (value) => (value > 0 && value < 0.005 ? "< 0.01" : value.toLocaleString("en", cents));
const MATTERS = ["unreachable", "expirable", "small", "oversized", "unreadable", "overlapping"];
// From the least to the most, as far as both are known.
function between(range, text) {
  if (range.at_least === null) return "–";
  if (range.at_most === null) return text(range.at_least) + " or more";
  return range.at_least === range.at_most ? text(range.at_most) : text(range.at_least) + "–" + text(range.at_most);
}
function cells(...values) {
  const made = element("tr");
  values.forEach(([value, className, label]) => {
    const td = element("td", null, className);
    if (label && value !== "") td.dataset.label = label; // a narrow page has no line of headings
    td.append(value);
    made.append(td);
  });
  return made;
}
function whyFound(one, matter) {
  if (matter === "unreachable" && one.looked_for_orphans) return "listed " + clock(one.looked_for_orphans.at) + ", plan " + one.looked_for_orphans.plan;
  if (matter === "unreadable") return one.problem ?? "";
  if (matter === "overlapping") return one.overlaps ? "may share files with " + one.overlaps.join(", ") : "may share files with any table, because its location is unknown";
  return { expirable: "snapshots that the table's rule expires", small: "data files below ¾ of the table's target size", oversized: "data files above 1.8 times the table's target size" }[matter] ?? "";
}
async function audit(turn, catalog) {
  refresh = null; // it reads what is known of a whole catalog, so the page does not repeat it
  $("audited").textContent = "Audit of " + catalog;
  document.title = "Audit of " + catalog;
  const found = await read("api/audit?" + new URLSearchParams({ catalog }));
  if (turn !== shown) return;
  $("month").textContent = "A month, " + found.prices.currency;
  const totals = MATTERS.filter((matter) => found.totals[matter]);
  $("total-rows").replaceChildren(...totals.map((matter) => {
    const one = found.totals[matter];
    return cells([matter], [number(one.tables), "number", "tables"], [number(one.count), "number", "count"], [between(one.bytes, size), "number"], [between(one.month, money), "number", "a month, " + found.prices.currency]);
  }));
  $("finding-rows").replaceChildren(...found.findings.flatMap((one) => MATTERS.filter((matter) => one[matter]).map((matter, at) =>
    cells([at ? "" : breakable([...one.namespace, one.name].join(".")), "long"], [matter], [number(one[matter].count), "number", "count"], [between(one[matter].bytes, size), "number"], [whyFound(one, matter), "what"]))));
  $("totals").hidden = $("findings").hidden = totals.length === 0;
  const notes = [
    counted(found.tables, "table") + (totals.length ? "" : ", nothing found"),
    found.references_as_of ? "reference index as of " + clock(found.references_as_of) : "the reference index has no complete pass yet",
    found.never_looked_for_orphans ? "never scanned for orphan files: " + counted(found.never_looked_for_orphans, "table") + " (`delegation orphans scan TABLE`)" : "",
    found.plans_unreadable.length ? counted(found.plans_unreadable.length, "plan") + " could not be read" : "",
  ];
  $("audit-notes").replaceChildren(sentence(notes.filter(Boolean).join("; ") + "."));
  $("audit-more").hidden = !found.more;
  $("audit-more").replaceChildren(sentence(counted(found.more, "more table") + "; `delegation audit CATALOG --csv` has all."));
  $("audit-found").hidden = false;
  if (arriving) $("audited").focus({ preventScroll: true });
  arriving = false;
}

function linkTo(fragment, ...content) {
  const made = element("a");
  made.href = "#" + fragment;
  made.append(...content);
  return made;
}
const unknownAs = (value, text) => (value === null || value === undefined ? "–" : text(value));
function healthCells(one, currency) {
  const name = linkTo("upkeep/" + encodeURIComponent(one.table), breakable([...one.namespace, one.name].join(".")));
  const expirable = one.expirable_snapshots === null ? "no rule" : number(one.expirable_snapshots);
  const saved = one.expirable_snapshots === null ? "–" : between(one.saved_month, money);
  const made = cells([name, "long"], [number(one.files), "number", "files"], [size(one.bytes), "number"], [number(one.small_files), "number", "small"], [number(one.snapshots), "number", "snapshots"], [expirable, "number", "expirable"], [money(one.cost_month), "number", currency + " a month"], [saved, "number", currency + " saved by expiry"]);
  if (one.problem) made.firstChild.append(element("span", "could not be read: " + one.problem, "note FAILURE"));
  for (const run of one.runs ?? []) if (run.waiting_plan) made.firstChild.append(element("span", run.task_type + " waits for approval", "note"));
  return made;
}
const UNDER_WAY = "under way";
function runCells(run) {
  const outcome = run.outcome ?? UNDER_WAY;
  const task = run.task_id ? linkTo(run.task_id, run.task_id.slice(0, 8)) : "";
  const [snapshots, files, bytes] = run.outcome ? [unknownAs(run.snapshots_removed, number), number(run.files_deleted), size(run.bytes_deleted)] : ["", "", ""];
  return cells([clock(run.began), "number"], [run.task_type], [element("span", outcome, run.outcome && run.outcome !== "SUCCESS" && run.outcome !== "WAITING" ? "FAILURE" : "")], [snapshots, "number", "snapshots"], [files, "number", "files"], [bytes, "number"], [breakable(run.policy), "long"], [task]);
}
function showTable(found) {
  const inside = "." + [...(found.namespace ?? []), found.name].join(".");
  $("whole-catalog").hidden = !found.table?.endsWith(inside);
  $("whole-catalog").firstChild.href = "#upkeep/" + encodeURIComponent(found.table?.slice(0, -inside.length) ?? "");
  const isRuled = found.expirable_snapshots !== null;
  pairs($("health"), [
    ["As of", clock(found.as_of)],
    ["Files", number(found.files) + ", " + size(found.bytes) + "; " + number(found.small_files) + " small"],
    ["Deletes", counted(found.delete_files, "delete file") + ", " + counted(found.deletion_vectors, "deletion vector")],
    ["Snapshots", number(found.snapshots) + ", " + (isRuled ? number(found.expirable_snapshots) + " expirable" : "no rule")],
    ["Costs", money(found.cost_month) + " " + found.currency + " a month" + (isRuled ? "; an expiry saves " + between(found.saved_month, money) : "")],
    ["Waits", found.waiting_plans?.length ? sentence(found.waiting_plans.map((plan) => "for approval: `delegation orphans approve " + plan + "`").join("; ")) : null],
    ["Problem", found.problem],
  ]);
  const runs = [...found.under_way, ...found.past];
  $("run-rows").replaceChildren(...runs.map(runCells));
  $("began").textContent = "Began, " + zone();
  $("runs").hidden = runs.length === 0;
  return runs.length ? "" : "No policy has run on this table yet.";
}
const NOTHING_KNOWN = "The health of tables in this catalog is not known yet. The first pass of the reference index reads the tables. A purge in the catalog starts this pass";
function showTables(found) {
  const total = found.tables.reduce((sum, one) => sum + one.cost_month, 0);
  const costs = counted(found.tables.length + found.more, "table") + "; " + (found.more ? "the files of the current snapshots of those shown cost " : "the files of their current snapshots cost ") + money(total) + " " + found.currency + " a month in S3 Standard (prices of " + found.prices_region + ", " + found.prices_as_of + ")";
  $("health-rows").replaceChildren(...found.tables.map((one) => healthCells(one, found.currency)));
  $("healths").hidden = found.tables.length === 0;
  $("upkeep-more").hidden = !found.more;
  $("upkeep-more").replaceChildren(sentence(counted(found.more, "more table") + "; `delegation health CATALOG --json` has all."));
  const losers = new Set(found.lost_refs.map((one) => one.table_uuid || one.id)).size; // a damaged entry has no uuid
  const lost = losers ? "; expiries lost refs of " + counted(losers, "table") + ": `delegation references lost CATALOG` lists them" : "";
  return (found.tables.length ? costs : NOTHING_KNOWN) + lost + ".";
}
async function upkeep(turn, name) {
  refresh = null; // the service stores it after each pass, minutes apart
  $("kept").replaceChildren("Upkeep of ", breakable(name));
  $("whole-catalog").hidden = true;
  document.title = "Upkeep of " + name;
  const found = await read("api/upkeep?" + new URLSearchParams({ name }));
  if (turn !== shown) return;
  for (const id of ["healths", "runs", "upkeep-more"]) $(id).hidden = true;
  $("health").replaceChildren();
  $("upkeep-notes").replaceChildren(sentence(found.tables ? showTables(found) : showTable(found)));
  $("upkeep-found").hidden = false;
  if (arriving) $("kept").focus({ preventScroll: true });
  arriving = false;
}

// What operators paused, and tables that were dropped through the gateway.
async function pauses(turn) {
  const found = (await read("api/health")).paused ?? [];
  if (turn !== shown) return;
  $("pause-table").hidden = found.length === 0;
  $("no-pauses").hidden = found.length > 0;
  $("no-pauses").replaceChildren(sentence("Nothing is paused. `delegation pause` stops all work, one realm or one table; `delegation resume` ends that."));
  $("pause-rows").replaceChildren(...found.map((one) => cells([breakable(one.table ?? one.realm ?? "all tasks"), "long"], [one.mode === "drain" ? "drained: running attempts finish, none begins" : "stopped"], [askerText(one.by) ?? "", null, "by"], [clock(one.since), null, "since"], [one.reason ?? "", "what"])));
}
async function tombstones(turn) {
  const { tombstones: found, more } = await read("api/tombstones");
  if (turn !== shown) return;
  $("stones").hidden = found.length === 0;
  $("no-tombstones").hidden = found.length > 0 && !more;
  $("no-tombstones").replaceChildren(sentence(more ? "These are the newest 100; `delegation tombstones list` has all." : "No table was dropped through the gateway."));
  $("stone-rows").replaceChildren(...found.map((one) => {
    const made = cells([breakable(one.table), "what"], [element("span", one.state, "status " + (one.is_ended ? "" : one.state === "FAILED" ? "FAILURE" : "RUNNING"))], [one.caller, null, "by"], [clock(one.created_at), null, "dropped"], [clock(one.grace_until), null, "purge from"], [one.task_id ? linkTo(one.task_id, one.task_id.slice(0, 8)) : ""]);
    const problem = [one.problem, one.trouble].filter(Boolean).join("; ");
    if (problem) made.firstChild.append(element("span", problem, "note" + (one.state === "FAILED" ? " FAILURE" : "")));
    return made;
  }));
}
