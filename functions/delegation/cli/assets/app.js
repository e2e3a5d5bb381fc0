"use strict";
// Every value of the service is put into the page as text, never as HTML.
const $ = (id) => document.getElementById(id);
const REFRESH_MS = 5000;
const USUAL_TYPE = "TABLE_PURGE";
let timer = 0, shown = 0;
let refresh = null; // what reads the shown page again, null if it stands still
const problems = new Map(); // by what was read: a page that was read must not hide that another was not

function element(name, text, className) {
  const made = document.createElement(name);
  if (text !== undefined && text !== null) made.textContent = String(text);
  if (className) made.className = className;
  return made;
}
const STATUSES = new Set(["SUBMITTED", "ACQUIRING_RESOURCES", "RUNNING", "RETRY_SCHEDULED", "SUCCESS", "FAILURE"]);
const known = (status) => (STATUSES.has(status) ? status : "");
const badge = (status) => element("span", status, "status " + known(status));
const number = (value) => (value ?? 0).toLocaleString("en");
const counted = (count, what) => number(count) + " " + what + (count === 1 ? "" : "s");
function size(bytes) {
  let value = bytes ?? 0, unit = 0;
  for (; value >= 1024 && unit < 4; unit++) value /= 1024;
  return (unit ? value.toFixed(1) : value) + " " + ["B", "KiB", "MiB", "GiB", "TiB"][unit];
}
const clock = (text) => (text ? new Date(text).toLocaleString("sv") : "");
const zone = () => new Intl.DateTimeFormat("en", { timeZoneName: "short" }).formatToParts().find((one) => one.type === "timeZoneName").value;
const padded = (value) => String(value).padStart(2, "0");
function lasting(from, to) {
  const s = Math.max(0, (new Date(to) - new Date(from)) / 1000), whole = Math.round(s);
  if (s < 60) return s.toFixed(1) + " s";
  return whole < 3600 ? Math.floor(whole / 60) + " min " + padded(whole % 60) + " s" : about(s);
}
// One unit is enough in a list, and changes once a minute at most.
function about(s) {
  const minutes = Math.floor(Math.max(0, s) / 60);
  if (minutes < 1) return "< 1 min";
  if (minutes < 120) return minutes + " min";
  return minutes < 2880 ? Math.floor(minutes / 60) + " h " + padded(minutes % 60) + " min" : Math.floor(minutes / 1440) + " days";
}
// A summary states bytes and seconds exactly; people read them as everywhere else.
const summaryOf = (task) => (task.result_summary ?? "").replace(/\b(\d+) bytes\b/g, (_, bytes) => size(Number(bytes)))
  .replace(/\bin (\d+\.\d) s\b/g, (_, seconds) => "in " + lasting(0, seconds * 1000));
const since = (text) => (Date.now() - new Date(text)) / 1000;
const ended = (task) => task.status === "SUCCESS" || task.status === "FAILURE";
const named = (task) => task.shown ?? task.table ?? task.task_type;
// A long name breaks after its dots and underscores; what is copied has no break.
function breakable(name) {
  const made = element("span", null, "name");
  for (const part of name.split(/(?<=[._])/)) made.append(part, element("wbr"));
  return made;
}
// `commands` of a sentence can be told from its words, and are selected with one click.
function sentence(text) {
  const made = element("span");
  text.split("`").forEach((part, at) => made.append(at % 2 ? element("code", part) : part));
  return made;
}
function progressOf(task) {
  const failed = task.files_failed ? ", " + number(task.files_failed) + " failed" : "";
  if (task.files_planned && task.files_quarantined) return number(task.files_quarantined) + " of " + counted(task.files_planned, "file") + " tagged";
  if (task.status === "SUCCESS" && task.files_planned && !task.files_deleted) return counted(task.files_planned, "file") + " planned";
  if (task.files_planned) return number(task.files_deleted) + " of " + counted(task.files_planned, "file") + failed;
  if (task.files_deleted) return counted(task.files_deleted, "file") + failed;
  const progress = task.progress;
  if (!progress || progress.done === undefined || progress.done === null) return "";
  return number(progress.done) + (progress.total ? " of " + number(progress.total) : "") + " " + (progress.unit ?? "");
}
function shareOf(task) {
  const { done, total } = task.files_planned ? { done: task.files_deleted, total: task.files_planned } : (task.progress ?? {});
  return total ? Math.min(1, done / total) : null;
}
// A plan that waits for a person is a state of the task, and no fault.
function waits(task) {
  const plan = task.waiting_plan, approval = task.approval;
  if (!plan || task.status !== "SUCCESS") return "";
  if (approval && approval.plan === plan.id && approval.sha256 === plan.sha256 && since(approval.until) < 0) return "approved by " + askerText(approval.by) + " until " + clock(approval.until);
  return "waits for approval (" + task.waits + ")";
}
function ahead(task) {
  if (task.cancel_requested && !ended(task)) return "cancelling";
  const left = (at) => -since(at);
  if (task.status === "RETRY_SCHEDULED" && task.next_scheduled_run_ts && left(task.next_scheduled_run_ts) > 0) return "next attempt in " + about(left(task.next_scheduled_run_ts));
  if (task.status === "RUNNING" && task.eta_ts && left(task.eta_ts) > 0) return "about " + about(left(task.eta_ts)) + " left";
  return "";
}

// Characters that turn the direction of what follows, with which one name looks like another (Unicode Standard Annex #9).
const TURNING = /[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;
async function read(path) {
  let answer, body;
  try {
    answer = await fetch(path, { headers: { Accept: "application/json" } });
    body = JSON.parse(await answer.text(), (_, value) => (typeof value === "string" ? value.replace(TURNING, "\ufffd") : value));
  } catch {
    throw Object.assign(new Error("This page's server does not answer."), { next: "Start `delegation ui` again, and open the address that it prints." });
  }
  if (!answer.ok) throw Object.assign(new Error(body.message), { next: body.next_step });
  return body;
}
function showProblems() {
  const texts = new Map([...problems.values()].map((error) => [error.message, error.next ?? ""]));
  $("problem").hidden = texts.size === 0;
  const wanted = [...texts].flatMap(([message, next]) => [message, next]).filter(Boolean);
  if ($("problem").dataset.shown === wanted.join("\n")) return; // a screen reader would read it again
  $("problem").dataset.shown = wanted.join("\n");
  $("problem").replaceChildren(...wanted.map((text) => { const made = element("p"); made.append(sentence(text)); return made; }));
}

function row(task) {
  const made = element("tr", null, "row");
  const link = element("a", task.task_id.slice(0, 8));
  link.href = "#" + task.task_id;
  link.title = task.task_id;
  const cell = (className, ...content) => {
    const td = element("td", null, className);
    td.append(...content);
    made.append(td);
    return td;
  };
  cell("id", link);
  const state = cell("state", badge(task.status));
  if (task.last_status_change_ts) state.append(element("span", (ended(task) ? "" : "for ") + about(since(task.last_status_change_ts)) + (ended(task) ? " ago" : ""), "note"));
  const what = cell("what", breakable(named(task)));
  if (task.table && task.task_type !== USUAL_TYPE) what.append(element("span", task.task_type, "note"));
  if (waits(task)) what.append(element("span", waits(task), "note"));
  if (task.partly_deleted) what.append(element("span", "table incomplete: files were deleted before the failure", "note FAILURE"));
  if (task.error_code && task.status !== "SUCCESS") {
    const text = [task.error_code, summaryOf(task)].filter(Boolean).join(": ");
    const note = element("span", text, "note short " + (task.status === "FAILURE" ? "FAILURE" : ""));
    note.title = text;
    what.append(note);
  }
  const progress = cell("progress", progressOf(task));
  const share = shareOf(task);
  if (share !== null && !ended(task)) {
    const bar = element("progress");
    bar.value = share;
    progress.append(element("br"), bar);
  }
  if (ahead(task)) progress.append(element("span", ahead(task), "note"));
  cell("number attempt", String(task.attempt_count));
  cell("received", clock(task.received_timestamp));
  made.addEventListener("click", () => { if (!String(getSelection())) location.hash = task.task_id; });
  return made;
}
function unreadable(one) {
  const made = element("tr"), cell = element("td", null, "what");
  cell.colSpan = 6;
  cell.append(element("code", one.task_id), element("span", "cannot be read by this release: " + one.reason, "note"));
  made.append(cell);
  return made;
}
const query = () => {
  const given = new URLSearchParams(new FormData($("filters")));
  for (const [name, value] of [...given]) if (!value.trim()) given.delete(name);
  return given;
};
function nothing(page) {
  if (page.next_page_token) return "None of the newest tasks matches. Choose Older tasks to look further.";
  return query().size ? "No task matches." : "There are no tasks yet. `delegation submit CATALOG.NAMESPACE.TABLE` submits a task.";
}
async function list(turn, token) {
  const wanted = query();
  if (token) wanted.set("page_token", token);
  const page = await read("api/tasks?" + wanted);
  if (turn !== shown) return;
  const focused = document.activeElement?.getAttribute("href");
  const made = [...page.tasks.map(row), ...page.unreadable.map(unreadable)];
  if (token) $("rows").append(...made);
  else $("rows").replaceChildren(...made);
  if (focused) [...$("rows").querySelectorAll("a")].find((one) => one.getAttribute("href") === focused)?.focus({ preventScroll: true });
  $("received").textContent = "Received, " + zone();
  const empty = $("rows").childElementCount === 0;
  $("tasks").hidden = empty;
  $("empty").hidden = !empty;
  $("empty").replaceChildren(sentence(nothing(page)));
  $("more").hidden = !page.next_page_token;
  $("more").onclick = () => older(turn, page.next_page_token);
}
async function older(turn, token) {
  clearTimeout(timer);
  refresh = null;
  await run(turn, "list", () => list(turn, token));
  $("still").hidden = false;
}

function step(version, next, isLast) {
  const made = element("li");
  made.append(element("i", null, known(version.status)), badge(version.status), " ", element("time", clock(version.last_status_change_ts)));
  const running = isLast && !ended(version);
  const until = next ? " for " + lasting(version.last_status_change_ts, next.last_status_change_ts) : running ? " for " + lasting(version.last_status_change_ts, Date.now()) + " so far" : "";
  const attempt = version.attempt_count ? " · attempt " + version.attempt_count : "";
  made.append(element("span", until + attempt + (version.engine ? " · " + version.engine : ""), ""));
  const text = [version.error_code, summaryOf(version)].filter(Boolean).join(": ");
  if (text) {
    const note = element("span", null, "note " + (version.status === "FAILURE" ? "FAILURE" : ""));
    note.append(sentence(text));
    made.append(note);
  }
  return made;
}
function pairs(target, values) {
  target.replaceChildren();
  for (const [name, value] of values) {
    if (value === null || value === undefined || value === "") continue;
    const dd = element("dd");
    dd.append(value);
    target.append(element("dt", name), dd);
  }
}
function whyPairs(task, why) {
  const asker = task.requested_by, said = (text) => (text === "none" ? null : text);
  return [
    ["Next", why.next ? sentence(why.next) : null],
    ["Do", why.advice ? sentence(why.advice) : null],
    ["Last error", said(why.last_error)],
    ["Attempt", said(why.attempt)],
    ["Held by", said(why.holder)],
    ["Approval", waits(task)],
    ["Requested by", askerText(asker)],
    ["Correlation id", task.correlation_id],
  ];
}
// What is at the table's location after its purge, and the command that lists it.
function stayedText(stayed) {
  if (!stayed) return null;
  if (stayed.problem) return "not known: " + stayed.problem;
  if (!stayed.objects) return "nothing";
  const made = element("span", counted(stayed.objects, "object") + (stayed.is_whole ? "" : " or more") + ", " + size(stayed.bytes) + ": ");
  made.append(element("code", stayed.command));
  return made;
}
// A bucket with versions keeps what was deleted, and a removal of orphan files (SWEPT) has a way back.
function freedText(receipt) {
  if (receipt.bytes_freed !== null) return null;
  const back = receipt.status === "SWEPT" && receipt.files_deleted ? "; `delegation orphans restore " + receipt.task_id + "` brings the files back" : "";
  return sentence("nothing, because the bucket keeps versions" + back);
}
function foreignText(one) {
  return one.uuid + " at " + one.place + ": " + counted(one.files, "file") + ", " + size(one.bytes) + (one.why ? " (" + one.why + ")" : "");
}
function receiptPairs(receipt) {
  const kinds = Object.entries(receipt.by_type ?? {}).map(([kind, one]) => kind + " " + number(one.files) + " (" + size(one.bytes) + ")");
  const findings = (receipt.findings ?? []).map((one) => one.code + " (" + number(one.count) + ")");
  const asker = receipt.requested_by;
  return [
    ["Status", receipt.status],
    ["Deleted", receipt.files_deleted === undefined ? null : number(receipt.files_deleted) + " of " + counted(receipt.files_planned, "file") + ", " + size(receipt.bytes_deleted)],
    ["Freed", freedText(receipt)],
    ["Tagged", receipt.files_quarantined ? counted(receipt.files_quarantined, "file") + ", " + size(receipt.bytes_quarantined) + " (" + receipt.quarantine + ")" : null],
    ["By type", kinds.join(", ")],
    ["Still at the location", stayedText(receipt.stayed)],
    ["Kept", receipt.files_kept ? counted(receipt.files_kept, "file") : null],
    ["Failed", receipt.files_failed ? counted(receipt.files_failed, "file") : null],
    ["Findings", findings.join(", ")],
    ["Foreign tables", (receipt.foreign_tables ?? []).map(foreignText).join("; ")],
    ["Deleted with approval", (receipt.included ?? []).map(foreignText).join("; ")],
    ["Engine", receipt.engine],
    ["Took", receipt.seconds === undefined ? null : receipt.seconds + " s, " + counted(receipt.attempts, "attempt")],
    ["Finished", clock(receipt.finished_at)],
    ["Requested by", askerText(asker)],
    ["Approved by", receipt.approval ? askerText(receipt.approval.by) + ", " + clock(receipt.approval.at) + receipt.approval.including.map((one) => ", including " + one).join("") : null],
    ["Table UUID", receipt.table_uuid],
    ["SHA-256 of the paths", receipt.paths_sha256],
  ];
}
let former = null, arriving = false;
async function detail(turn, id) {
  const found = await read("api/tasks/" + encodeURIComponent(id));
  if (turn !== shown) return;
  const { task, versions, receipt, why } = found;
  document.title = named(task) + ": " + task.status;
  $("what").replaceChildren(...(task.table ? [task.task_type + " of "] : []), breakable(named(task)));
  $("status").replaceChildren(badge(task.status));
  $("whole").hidden = !task.partly_deleted;
  $("of-table").hidden = !task.table;
  $("of-table").href = "#upkeep/" + encodeURIComponent(task.table ?? "");
  $("id").textContent = task.task_id;
  pairs($("why"), whyPairs(task, why));
  const share = shareOf(task), progress = progressOf(task);
  $("bar").hidden = !progress;
  $("done").hidden = share === null || (ended(task) && !share); // nothing of a plan that waits is under way
  $("done").value = share ?? 0;
  $("done").className = known(task.status);
  $("counts").textContent = progress + (task.bytes_deleted ? ", " + size(task.bytes_deleted) : "") + (!ended(task) && task.files_per_second ? ", " + number(task.files_per_second) + " a second" : "");
  $("zone").textContent = zone();
  $("timeline").replaceChildren(...versions.map((one, at) => step(one, versions[at + 1], at === versions.length - 1)));
  $("no-receipt").hidden = Boolean(receipt);
  $("no-receipt").textContent = task.task_type === USUAL_TYPE && !ended(task) ? "The receipt is written when the purge ends." : "This task has no receipt.";
  pairs($("receipt"), receipt ? receiptPairs(receipt) : []);
  $("record").textContent = JSON.stringify(task, null, 2);
  $("found").hidden = false;
  if (arriving) $("what").focus({ preventScroll: true });
  arriving = false;
  if (ended(task)) refresh = null;
}
async function service() {
  const health = await read("api/health");
  $("service").textContent = [health.realm, health.version ? "release " + health.version : null, health.status].filter(Boolean).join(" · ");
  const pauses = health.paused ?? [];
  $("paused").hidden = pauses.length === 0;
  $("paused").textContent = pauses.map((one) => (one.mode === "drain" ? "Drained" : "Paused") + ": " + (one.table ?? one.realm ?? "all tasks") + ", by " + one.by.client_id + " since " + clock(one.since) + (one.reason ? " (" + one.reason + ")" : "")).join("; ");
}
async function run(turn, name, act) {
  let failed = null;
  try { await act(); } catch (error) { failed = error; }
  if (turn !== shown) return;
  if (failed && name === "service") $("service").textContent = "no answer";
  if (failed) problems.set(name, failed);
  else problems.delete(name);
  if (name !== "service" && !failed) $("read").textContent = "· read at " + new Date().toLocaleTimeString("sv");
  showProblems();
}
// The next round begins after the last one has ended, so that a slow service gets no second question meanwhile.
async function round(turn) {
  clearTimeout(timer);
  // Rows that are read anew would end a selection.
  if (refresh && !document.hidden && !String(getSelection())) await Promise.all([run(turn, "list", refresh), run(turn, "service", service)]);
  if (turn === shown && refresh) timer = setTimeout(() => round(turn), REFRESH_MS);
}
const CATALOG_VIEW = /^(audit|upkeep)(?:\/(.*))?$/s;
const MAINS = ["list", "task", "choose", "audit", "upkeep", "tombstones", "pauses"];
function decoded(text) {
  try { return decodeURIComponent(text); } catch { return text; }
}
// The only catalog needs no choice.
async function choose(turn, view) {
  refresh = null;
  $("chosen").textContent = view === "audit" ? "Audit of a catalog" : "Upkeep of a catalog";
  const { catalogs } = await read("api/catalogs");
  if (turn !== shown) return;
  if (catalogs.length === 1) return location.replace("#" + view + "/" + encodeURIComponent(catalogs[0]));
  $("catalogs").replaceChildren(...catalogs.map((one) => { const made = element("option"); made.value = one; return made; }));
  $("choose").dataset.view = view;
}
const ID = /^[0-9a-fA-F-]{36}$/;
// A client, and the subject for which it acted if that is another.
function askerText(asker) {
  if (!asker) return null;
  return asker.client_id + (asker.subject && asker.subject !== asker.client_id ? " (" + asker.subject + ")" : "");
}
function noTask() {
  throw Object.assign(new Error("The address names no task."), { next: "Choose Tasks to see all tasks." });
}
// With the keyboard one continues where the view begins, and after a task at its row. What is hidden takes no focus.
function moveFocus(from, id) {
  arriving = Boolean(id);
  const row = from && !id ? [...$("rows").querySelectorAll("a")].find((one) => one.getAttribute("href") === "#" + from) : null;
  (row ?? $("heading")).focus({ preventScroll: true });
}
function route(event) {
  const turn = ++shown;
  const id = location.hash.slice(1);
  const [, view, text] = CATALOG_VIEW.exec(id) ?? [], name = decoded(text ?? "");
  const views = {
    "": ["list", () => list(turn)], tombstones: ["tombstones", () => tombstones(turn)], pauses: ["pauses", () => pauses(turn)],
    audit: name ? ["audit", () => audit(turn, name)] : ["choose", () => choose(turn, "audit")],
    upkeep: name ? ["upkeep", () => upkeep(turn, name)] : ["choose", () => choose(turn, "upkeep")],
  };
  const [main, act] = views[view ?? id] ?? ["task", ID.test(id) ? () => detail(turn, id) : noTask];
  for (const one of MAINS) $(one).hidden = one !== main;
  for (const link of document.querySelectorAll("nav a")) {
    const isHere = link.hash.slice(1) === (view ?? (main === "task" ? "" : id));
    link.toggleAttribute("aria-current", isHere);
  }
  $("audit-found").hidden = $("upkeep-found").hidden = true;
  $("found").hidden = true;
  $("still").hidden = true;
  getSelection().empty();
  problems.clear();
  showProblems();
  document.title = "Delegation service: " + (views[view ?? id] ? (view ?? (id || "tasks")) : "task");
  refresh = act;
  if (event) moveFocus(former, id);
  former = id;
  round(turn);
}
$("filters").addEventListener("submit", (event) => { event.preventDefault(); location.hash ? (location.hash = "") : route(); });
$("choosing").addEventListener("submit", (event) => { event.preventDefault(); location.hash = $("choose").dataset.view + "/" + encodeURIComponent(new FormData($("choosing")).get("catalog").trim()); });
$("newest").addEventListener("click", () => route());
window.addEventListener("hashchange", route);
document.addEventListener("visibilitychange", () => { if (!document.hidden) round(shown); });
route();
