// The Streams page. It asks for a snapshot every few seconds while it is visible, and brings what changed up to date.
//
// Its address says what it shows: `?pipeline=orders#check-totals`, and without a pipeline all of them. What a snapshot
// says is new is read at once: the history with a result of a check, the dead letters with a record of their topic.
import { bad, byId, element, update } from "./elements.js";
import { setClock, time, zone } from "./format.js";
import { adoptTheme, followLinks, note, wasCalledAgain } from "./frame.js";
import { ask, read, trigger } from "./server.js";
import { showMicroBatches, showSummary, showTasks } from "./tasks.js";
import { showChecks, showVerified, showVerifiedDays } from "./checks.js";
import { beginZoom, fit, markBehind, markWrong, pointedAt, showRates } from "./topology.js";
import { beginCopying, examine, lookUp, recordsOf, showRecords, showTopics } from "./records.js";
import { beginRedriving, forgetDeadLetters, showDeadLetters, showRedrive } from "./dead_letters.js";
import { showOverview } from "./overview.js";

const POLL_MS = 5000;
const OF_ONE = ["summary", "diagram", "task-rows", "batch-rows", "check-rows", "run-answer", "verified-days", "key-rows", "topic-rows",
  "records-topic", "topic-view", "record-rows", "redrive-answer", "redrive-outcome", "dead-letter-rows"];

let base = null; // the address of the application that is shown; empty: of all
let healthDag = ""; // the DAG that runs its checks; empty where none does
let history = {}; // the results of each check
let seen = {}; // what was read beside the last snapshot, by what it belongs to
let timer = 0;
let arrived = true; // whether the place that the address names is on the screen

const applications = (connection) => `api/connections/${encodeURIComponent(connection)}/applications`;
const query = () => new URLSearchParams(location.search);
const chosen = (kind, name) => query().get("row") === `${kind} ${name}`;

function tell(problem) {
  byId("problem").textContent = problem;
  byId("problem").hidden = !problem;
}

// -- the loop

async function refresh() {
  clearTimeout(timer);
  const asked = base;
  try {
    if (base) await refreshOne(asked);
    else await refreshAll(asked);
  } catch (error) {
    if (asked === base) tell(error.message);
  }
  if (asked !== base) return; // another application was chosen meanwhile
  arrive();
  if (!document.hidden) timer = setTimeout(refresh, POLL_MS);
}

async function refreshAll(asked) {
  const overview = await read("api/overview");
  if (asked !== base) return;
  setClock(overview.at);
  tell("");
  showOverview(overview);
  showMoment("", overview.at);
}

async function refreshOne(asked) {
  const snapshot = await read(asked);
  await readNews(asked, snapshot);
  if (asked !== base) return;
  setClock(snapshot.at);
  tell(snapshot.problem);
  showSummary(snapshot);
  showChecks(snapshot, history);
  showVerified(snapshot);
  showMicroBatches(snapshot);
  if (!snapshot.problem) {
    markBehind(showTasks(snapshot, chosen));
    showTopics(snapshot, chosen);
    showRates(snapshot);
    markWrong(snapshot);
    if (byId("records-follow").checked) await showRecords(asked, { quietly: true });
  }
  showMoment(snapshot.application_id, snapshot.at);
}

// Reads what the snapshot says is new, so that all parts of the page are of the same moment.
async function readNews(asked, snapshot) {
  const results = JSON.stringify([snapshot.at.slice(0, 10), ...snapshot.checks.map((check) => check.at)]); // a day begins, too
  const ends = JSON.stringify(snapshot.topics.filter((topic) => topic.role === "dead-letter").map((topic) => topic.end));
  const [past, days, letters, redriven] = await Promise.all([
    ...(results === seen.results ? [null, null] : [read(`${asked}/history`), read(`${asked}/verified-days`)]),
    snapshot.problem || ends === seen.ends ? null : read(`${asked}/dead-letters`).catch((error) => error),
    healthDag ? read(`${asked}/redrive`).catch((error) => error) : null,
  ]);
  if (asked !== base) return;
  seen = { results, ends: letters instanceof Error || snapshot.problem ? seen.ends : ends };
  if (past) {
    history = {};
    for (const each of past) (history[each.check] ??= []).push(each);
    showVerifiedDays(days);
  }
  if (letters instanceof Error) update("dead-letter-rows", bad(letters.message));
  else showDeadLetters(letters ?? undefined);
  await showRedrive(redriven);
}

function showMoment(what, at) {
  byId("as-of").textContent = `${what ? `${what}, ` : ""}as of ${time(at)} ${zone()}`;
}

// -- what is shown, as the address says it

function show() {
  note();
  const asked = query(), application = asked.get("application"), pipeline = asked.get("pipeline");
  if (application) choose(`${applications(asked.get("connection") ?? "kafka_default")}/${encodeURIComponent(application)}`, "");
  else choose(pipeline ? `api/pipelines/${encodeURIComponent(pipeline)}` : "", pipeline ?? "");
}

function showAt(of, hash = "") {
  window.history.pushState(null, "", `${location.pathname}?${new URLSearchParams(of)}${hash}`);
  show();
}

async function choose(of, pipeline) {
  arrived = false;
  if (of === base) {
    await refresh();
    return;
  }
  base = of;
  healthDag = pipeline ? `${pipeline}_health` : "";
  history = {};
  seen = {};
  forgetDeadLetters(pipeline ? `${pipeline}_redrive` : "");
  for (const id of OF_ONE) update(id);
  byId("verified").textContent = byId("as-of").textContent = "";
  tell("");
  byId("overview").hidden = Boolean(of);
  byId("one").hidden = byId("sections").hidden = !of;
  byId("run-checks").hidden = !healthDag;
  byId("pipeline").value = pipeline;
  if (of) showDiagram(of);
  await refresh();
}

async function showDiagram(of) {
  let diagram;
  try {
    const text = await (await ask(`${of}/topology.svg`)).text();
    diagram = document.importNode(new DOMParser().parseFromString(text, "image/svg+xml").documentElement, true);
  } catch (error) {
    diagram = bad(error.message);
  }
  if (of !== base) return;
  byId("diagram").replaceChildren(diagram);
  fit();
  if (byId("task-rows").childElementCount) refresh(); // it came after the snapshot, which marks what is wrong in it
}

// Shows the place that the address names, once it is there: a section, a check, a record or a row.
function arrive() {
  if (arrived || !base) return;
  arrived = true;
  const part = decodeURIComponent(location.hash.slice(1));
  if (part) {
    if (part === "records" && recordsOf(query())) showRecords(base);
    if (byId(part)?.localName === "details") byId(part).open = true;
    return byId(part)?.scrollIntoView();
  }
  const [kind, ...rest] = (query().get("row") ?? "").split(" "), named = CSS.escape(rest.join(" "));
  if (kind) document.querySelector(kind === "topic" ? `tr[data-row="${named}"]` : `tr[data-of="${named}"]`)?.scrollIntoView({ block: "center" });
}

// -- what a person does

async function runChecks() {
  byId("run-checks").disabled = true;
  try {
    const run = await trigger(healthDag, {});
    update("run-answer", "The run ", element("a", { href: `../dags/${encodeURIComponent(healthDag)}/runs/${encodeURIComponent(run.dag_run_id)}` }, run.dag_run_id),
      " has begun. Results appear below.");
  } catch (error) {
    update("run-answer", bad(error.message));
  }
  byId("run-checks").disabled = false;
}

function point(event) {
  const row = pointedAt(event);
  if (!row) return;
  const of = query();
  of.set("row", row);
  showAt(of);
}

// Suggests the consumer groups of the brokers. Without them a person can still type.
async function suggest() {
  const groups = await read(applications(byId("connection").value)).catch(() => []);
  update("groups", ...groups.map((group) => element("option", { value: group })));
}

async function nameBroken() {
  const broken = await read("api/broken-pipelines");
  byId("broken").textContent = broken.join("\n");
  byId("broken").hidden = !broken.length;
}

const on = (id, event, handle) => byId(id).addEventListener(event, handle);
const submitted = (handle) => (event) => { event.preventDefault(); handle(); };

async function begin() {
  adoptTheme();
  setInterval(() => {
    adoptTheme();
    if (wasCalledAgain()) showAt({});
  }, 1000);
  followLinks(show);
  beginCopying();
  beginRedriving(byId("dead-letter-rows"));
  beginZoom();
  on("pipeline", "change", ({ target }) => showAt(target.value ? { pipeline: target.value } : {}));
  on("diagram", "click", point);
  on("diagram", "keydown", point);
  on("key-form", "submit", submitted(() => lookUp(base, byId("key").value)));
  on("records-form", "submit", submitted(() => showRecords(base)));
  on("records-follow", "change", ({ target }) => target.checked && showRecords(base));
  on("examine", "click", () => examine(base, byId("records-topic").value));
  on("run-checks", "click", runChecks);
  on("other", "toggle", suggest);
  on("connection", "change", suggest);
  on("application-form", "submit", submitted(() => showAt({ application: byId("application").value.trim(), connection: byId("connection").value.trim() })));
  document.addEventListener("visibilitychange", () => !document.hidden && base !== null && refresh());
  nameBroken().catch((error) => tell(error.message)); // the other pipelines are shown all the same
  try {
    const names = await read("api/pipelines");
    update("pipeline", element("option", { value: "" }, "All"), ...names.map((each) => element("option", { value: each }, each)));
  } catch (error) {
    tell(error.message);
  }
  const asked = query();
  if (asked.has("application")) {
    byId("other").open = true;
    byId("application").value = asked.get("application");
    byId("connection").value = asked.get("connection") ?? "kafka_default";
  }
  show();
}

begin();
