"use strict";
// Every value of the service is put into the page as text, never as HTML.
const $ = (id) => document.getElementById(id);
const REFRESH_MS = 5000;
let timer = 0, shown = 0;

function element(name, text, className) {
  const made = document.createElement(name);
  if (text !== undefined && text !== null) made.textContent = String(text);
  if (className) made.className = className;
  return made;
}
const STATUSES = new Set(["SUBMITTED", "ACQUIRING_RESOURCES", "RUNNING", "RETRY_SCHEDULED", "SUCCESS", "FAILURE"]);
const badge = (status) => element("span", status, "status " + (STATUSES.has(status) ? status : ""));
const number = (value) => (value ?? 0).toLocaleString("en");
function size(bytes) {
  let value = bytes ?? 0, unit = 0;
  for (; value >= 1024 && unit < 4; unit++) value /= 1024;
  return (unit ? value.toFixed(1) : value) + " " + ["B", "KiB", "MiB", "GiB", "TiB"][unit];
}
const clock = (text) => (text ? new Date(text).toLocaleString("sv") : "");
function lasting(from, to) {
  const s = Math.max(0, (new Date(to) - new Date(from)) / 1000);
  return s < 60 ? s.toFixed(1) + " s" : s < 3600 ? Math.floor(s / 60) + " min " + Math.round(s % 60) + " s" : Math.floor(s / 3600) + " h " + Math.round((s % 3600) / 60) + " min";
}
const ended = (task) => task.status === "SUCCESS" || task.status === "FAILURE";
const named = (task) => (task.table ? task.table : task.task_type);
function progressOf(task) {
  if (task.files_planned) return number(task.files_deleted) + " of " + number(task.files_planned) + " files";
  if (task.files_deleted) return number(task.files_deleted) + " files";
  const progress = task.progress;
  if (!progress || progress.done === undefined || progress.done === null) return "";
  return number(progress.done) + (progress.total ? " of " + number(progress.total) : "") + " " + (progress.unit ?? "");
}

async function read(path) {
  const answer = await fetch(path, { headers: { Accept: "application/json" } });
  const body = await answer.json();
  if (!answer.ok) throw new Error(body.message + (body.next_step ? " " + body.next_step : ""));
  return body;
}
function problem(error) {
  $("problem").hidden = !error;
  $("problem").textContent = error ? error.message : "";
}

function row(task) {
  const made = element("tr", null, "row");
  const link = element("a", task.task_id.slice(0, 8));
  link.href = "#" + task.task_id;
  const cell = (content, className) => {
    const td = element("td", typeof content === "string" ? content : null, className);
    if (typeof content !== "string") td.append(content);
    made.append(td);
    return td;
  };
  cell(link);
  cell(badge(task.status));
  const what = cell(named(task), "what");
  if (task.table) what.append(element("span", task.task_type, "note"));
  if (task.error_code && task.status !== "SUCCESS") what.append(element("span", task.error_code + ": " + (task.result_summary ?? ""), "note " + (task.status === "FAILURE" ? "FAILURE" : "")));
  const progress = cell(progressOf(task), "number");
  if (task.files_planned && !ended(task)) {
    const bar = element("progress");
    bar.value = Math.min(1, task.files_deleted / task.files_planned);
    progress.append(element("br"), bar);
  }
  cell(String(task.attempt_count), "number");
  cell(clock(task.received_timestamp), "number");
  made.addEventListener("click", () => { location.hash = task.task_id; });
  return made;
}
const query = () => {
  const given = new URLSearchParams(new FormData($("filters")));
  for (const [name, value] of [...given]) if (!value.trim()) given.delete(name);
  return given;
};
async function list(token) {
  const turn = shown, wanted = query();
  if (token) wanted.set("page_token", token);
  const page = await read("api/tasks?" + wanted);
  if (turn !== shown) return;
  if (!token) $("rows").replaceChildren();
  $("rows").append(...page.tasks.map(row));
  for (const one of page.unreadable) $("rows").append(element("tr", one.task_id + " cannot be read: " + one.reason));
  $("empty").hidden = $("rows").childElementCount > 0;
  $("more").hidden = !page.next_page_token;
  $("more").onclick = () => { clearInterval(timer); run(() => list(page.next_page_token)); };
}

function step(version, next) {
  const made = element("li");
  made.append(badge(version.status), " ", element("time", clock(version.last_status_change_ts)));
  const until = next ? " for " + lasting(version.last_status_change_ts, next.last_status_change_ts) : "";
  const attempt = version.attempt_count ? " · attempt " + version.attempt_count : "";
  made.append(element("span", until + attempt + (version.engine ? " · " + version.engine : ""), ""));
  const text = [version.error_code, version.result_summary].filter(Boolean).join(": ");
  if (text) made.append(element("span", text, "note"));
  return made;
}
function pairs(target, values) {
  target.replaceChildren();
  for (const [name, value] of values) if (value !== null && value !== undefined && value !== "") target.append(element("dt", name), element("dd", value));
}
function receiptPairs(receipt) {
  const kinds = Object.entries(receipt.by_type ?? {}).map(([kind, one]) => kind + " " + number(one.files) + " (" + size(one.bytes) + ")");
  const findings = (receipt.findings ?? []).map((one) => one.code + " (" + number(one.count) + ")");
  const asker = receipt.requested_by;
  return [
    ["Status", receipt.status],
    ["Deleted", receipt.files_deleted === undefined ? null : number(receipt.files_deleted) + " of " + number(receipt.files_planned) + " files, " + size(receipt.bytes_deleted)],
    ["By type", kinds.join(", ")],
    ["Kept", receipt.files_kept ? number(receipt.files_kept) + " files" : null],
    ["Failed", receipt.files_failed ? number(receipt.files_failed) + " files" : null],
    ["Findings", findings.join(", ")],
    ["Engine", receipt.engine],
    ["Took", receipt.seconds === undefined ? null : receipt.seconds + " s, " + receipt.attempts + " attempts"],
    ["Finished", clock(receipt.finished_at)],
    ["Asked for by", asker ? asker.client_id + (asker.subject ? " (" + asker.subject + ")" : "") : null],
    ["Table UUID", receipt.table_uuid],
    ["SHA-256 of the paths", receipt.paths_sha256],
  ];
}
async function detail(id) {
  const turn = shown;
  const found = await read("api/tasks/" + encodeURIComponent(id));
  if (turn !== shown) return;
  const { task, versions, receipt, why } = found;
  document.title = named(task) + ": " + task.status;
  $("what").textContent = (task.table ? task.task_type + " of " : "") + named(task);
  $("status").replaceChildren(badge(task.status));
  $("id").textContent = task.task_id;
  $("next").textContent = [why.next, why.advice].filter(Boolean).join(" ");
  $("bar").hidden = !task.files_planned;
  $("done").value = task.files_planned ? Math.min(1, task.files_deleted / task.files_planned) : 0;
  $("counts").textContent = progressOf(task) + ", " + size(task.bytes_deleted) + (!ended(task) && task.files_per_second ? ", " + number(task.files_per_second) + " a second" : "") + (!ended(task) && task.eta_ts ? ", done at about " + clock(task.eta_ts) : "");
  $("timeline").replaceChildren(...versions.map((one, at) => step(one, versions[at + 1])));
  $("no-receipt").hidden = Boolean(receipt);
  pairs($("receipt"), receipt ? receiptPairs(receipt) : []);
  $("record").textContent = JSON.stringify(task, null, 2);
  if (ended(task)) clearInterval(timer);
}
async function service() {
  const health = await read("api/health");
  $("service").textContent = [health.realm, health.version ? "release " + health.version : null, health.status].filter(Boolean).join(" · ");
  const pauses = health.paused ?? [];
  $("paused").hidden = pauses.length === 0;
  $("paused").textContent = pauses.map((one) => (one.mode === "drain" ? "Drained" : "Paused") + ": " + (one.table ?? one.realm ?? "all tasks") + ", by " + one.by.client_id + " since " + clock(one.since) + (one.reason ? " (" + one.reason + ")" : "")).join("; ");
}
async function run(act) {
  try { await act(); problem(null); } catch (error) { problem(error); }
}
function route() {
  clearInterval(timer);
  shown++;
  const id = decodeURIComponent(location.hash.slice(1));
  $("list").hidden = Boolean(id);
  $("task").hidden = !id;
  document.title = "Delegation service: tasks";
  const look = id ? () => detail(id) : () => list();
  run(look);
  run(service);
  timer = setInterval(() => { if (!document.hidden) { run(look); run(service); } }, REFRESH_MS);
}
$("filters").addEventListener("submit", (event) => { event.preventDefault(); location.hash ? (location.hash = "") : route(); });
window.addEventListener("hashchange", route);
route();
