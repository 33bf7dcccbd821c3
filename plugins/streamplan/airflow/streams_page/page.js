// The Streams page. It asks for a snapshot every few seconds while it is visible, and draws what changed.
"use strict";

const POLL_MS = 5000;
const SLOW_MS = 60000;
const number = new Intl.NumberFormat("en");
const byId = (id) => document.getElementById(id);
let base = ""; // the address of the application that is shown
let healthDag = ""; // the DAG that runs its checks; empty where none does
let redriveDag = ""; // the DAG that processes its dead letters again; empty where none does
let unfolded = new Set(); // the reasons whose dead letters are shown
let chosenLetters = new Set(); // the places of dead letters that were chosen
let history = {};
let outcomes = {}; // of each check when it was last shown
let timer = 0;
let slowAt = 0;

// -- elements

function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children.map((child) => child ?? "–"));
  return made;
}

function replace(id, ...children) {
  byId(id).replaceChildren(...children);
}

// A column is [heading, function of a row, class]. A cell is text or an element.
function table(caption, columns, rows, describe = () => ({})) {
  const head = element("tr", {}, ...columns.map(([heading, , kind]) => element("th", { scope: "col", class: kind ?? "" }, heading)));
  const body = rows.map((row) =>
    element("tr", describe(row), ...columns.map(([, cell, kind]) => element("td", { class: kind ?? "" }, cell(row)))));
  return element("table", {}, element("caption", {}, caption), element("thead", {}, head), element("tbody", {}, ...body));
}

const count = (value) => (value === null ? "unknown" : number.format(value));
const milliseconds = (seconds) => `${number.format(Math.round(seconds * 1000))} ms`;
const rate = (value) => (value === null ? "…" : `${number.format(value)}/s`);

// A line of the last values, all of them to one scale, so that the task that lags stands out.
function sparkline(values, most) {
  if (values.length < 2) return "";
  const width = 90, height = 16, step = width / (values.length - 1);
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  for (const [name, value] of Object.entries({ width, height, class: "sparkline", role: "img", "aria-label": `from ${count(values[0])} to ${count(values.at(-1))}, at most ${count(Math.max(...values))}` }))
    svg.setAttribute(name, value);
  const line = document.createElementNS("http://www.w3.org/2000/svg", "polyline");
  line.setAttribute("points", values.map((value, n) => `${(n * step).toFixed(1)},${(height - 1 - (value / most) * (height - 2)).toFixed(1)}`).join(" "));
  svg.append(line);
  return svg;
}

function duration(seconds) {
  if (seconds === null) return "unknown";
  for (const [size, unit] of [[86400, "days"], [3600, "h"], [60, "min"]])
    if (seconds >= 2 * size) return `${Math.round(seconds / size)} ${unit}`;
  return `${number.format(Math.round(seconds * 10) / 10)} s`;
}

function moment(at) {
  if (!at) return "–";
  const seconds = Math.max((Date.now() - new Date(at)) / 1000, 0);
  return element("time", { datetime: at, title: at }, `${duration(seconds)} ago`);
}

// -- questions

async function ask(path, options) {
  const answer = await fetch(path, { credentials: "same-origin", ...options });
  if (answer.status === 401) throw new Error("Your login has ended. Log in to Airflow again.");
  if (!answer.ok) {
    const text = await answer.text();
    let detail = text;
    try { detail = JSON.parse(text).detail ?? text; } catch { /* the answer is no JSON */ }
    throw new Error(typeof detail === "string" ? detail : JSON.stringify(detail));
  }
  return answer;
}

const read = async (path) => (await ask(path)).json();
const address = (part = "") => `${base}${part}`;

function tell(problem) {
  byId("problem").textContent = problem;
  byId("problem").hidden = !problem;
}

// -- what is shown

const OUTCOME = { passed: ["good", "✔ passed"], failed: ["bad", "✘ failed"], "could not look": ["wait", "! could not look"] };

function outcome(result) {
  const [kind, text] = OUTCOME[result.outcome];
  return element("span", { class: kind }, text);
}

// What the group's members and the heartbeat say together: a process that is stopped stays a member for a while.
function aggregatorState(snapshot) {
  if (snapshot.problem) return ["unknown", "wait"];
  if (snapshot.members !== null && !snapshot.members.length) return ["not running", "bad"];
  const said = snapshot.aggregator;
  if (!said) return ["runs", "good"];
  if (snapshot.silent) return [`silent for ${duration((new Date(snapshot.at) - new Date(said.at)) / 1000)}`, "bad"];
  const restores = Object.values(said.restorations).find((each) => each.offsets < each.total);
  if (said.state === "starting" && restores) return [`restores, ${Math.floor((100 * restores.offsets) / restores.total)} %`, "wait"];
  if (said.held?.length) return ["holds a record back", "bad"];
  return said.state === "starting" ? ["starts", "wait"] : ["runs", "good"];
}

function showSummary(snapshot) {
  const lags = snapshot.tasks.map((task) => task.lag);
  const ages = snapshot.tasks.map((task) => task.lag_seconds);
  const failed = snapshot.checks.filter((check) => check.outcome !== "passed");
  const sum = (values) => (values.includes(null) || !values.length ? null : values.reduce((a, b) => a + b, 0));
  const most = ages.includes(null) || !ages.length ? null : Math.max(...ages);
  const sources = snapshot.topics.filter((topic) => topic.role === "source").map((topic) => topic.records_per_second);
  const totals = snapshot.checks.find((check) => check.check === "totals");
  const tile = (label, value, kind = "", title = "", section = "tasks") =>
    element("a", { class: "tile", title, href: `#${section}` }, element("span", { class: "dim" }, label), element("b", { class: kind }, value));
  const hasDeadLetters = snapshot.topics.some((topic) => topic.role === "dead-letter");
  const [state, kind] = aggregatorState(snapshot);
  const who = [snapshot.members?.join(", ") ?? "The members of the group cannot be seen.",
    ...(snapshot.aggregator ? [`Its last heartbeat: ${snapshot.aggregator.at} on ${snapshot.aggregator.host}.`, ...(snapshot.aggregator.held ?? [])] : [])].join(" ");
  replace("summary",
    tile("Aggregator", state, kind, who),
    tile("Lag", `${count(sum(lags))}`, sum(lags) ? "wait" : "", "Offsets that no task has processed yet"),
    tile("Oldest record waits", duration(most), most > 60 ? "wait" : ""),
    tile("Arriving", rate(sum(sources)), "", "Records that arrive in the input topics"),
    tile("Open dead letters", hasDeadLetters ? count(sum(Object.values(snapshot.dead_letters)) ?? 0) : "–", "",
      Object.entries(snapshot.dead_letters).map(([reason, records]) => `${count(records)} × ${reason}`).join("\n"), "dead-letters"),
    tile(failed.length ? `Checks, ${failed.length} of ${snapshot.checks.length} not passed` : "Checks",
      snapshot.checks.length ? (failed.length ? failed.map((check) => check.check).join(", ") : `all ${snapshot.checks.length} passed`) : "none has run",
      snapshot.checks.length ? (failed.length ? "bad" : "good") : "wait", failed.map((check) => check.reason).join("\n"), "checks"),
    totals?.outcome === "failed" ? tile("Totals", "wrong", "bad", totals.reason, "checks")
      : tile("Totals verified", totals?.outcome === "passed" ? moment(totals.at) : "–", totals?.outcome === "passed" ? "" : "wait", "", "totals"));
}

// Why a task is behind, as far as the brokers and the aggregator say it.
function reason(task, snapshot) {
  const runs = task.instance === null ? "" : ` on ${task.instance}, ${task.host}`;
  if (snapshot.members !== null && !snapshot.members.length) return "no aggregator runs: the group has no member";
  if (snapshot.silent) return "the aggregator is silent: it was killed, is stopped or hangs";
  if (task.lag === null) return "it has no position: it has never committed";
  if (task.records_per_second === null) return "…";
  if (task.records_per_second) return `records come faster than it processes them: it processes ${rate(task.records_per_second)}${runs}`;
  return `its position does not move${runs}: look whether a process is stopped, or a micro-batch lasts long`;
}

function showTasks(snapshot) {
  const known = snapshot.tasks.map((task) => task.lag ?? 0).sort((a, b) => a - b);
  const median = known[Math.floor(known.length / 2)] ?? 0;
  const behind = (task) => task.lag === null || (task.lag > 0 && (task.lag > 4 * median || task.lag_seconds > 60));
  const most = Math.max(1, ...snapshot.tasks.flatMap((task) => task.lag_by_minute));
  const columns = [
    ["Task", (task) => element("span", { class: "name" }, task.task)],
    ["Reads", (task) => element("span", { class: "name" }, task.inputs.map((input) => `${input.topic}-${input.partition}`).join(", "))],
    ["Records/s", (task) => rate(task.records_per_second), "number"],
    ["Lag", (task) => (task.lag === null ? "no position" : count(task.lag)), "number"],
    ["Oldest waits", (task) => duration(task.lag_seconds), "number"],
    ["Lag by minute", (task) => sparkline(task.lag_by_minute, most)],
    ["Instance", (task) => (task.instance === null ? "–" : `${task.instance} on ${task.host}`)],
    ["Last commit", (task) => moment(task.last_commit)],
    ...(snapshot.tasks.some(behind) ? [["Why it is behind", (task) => (behind(task) ? reason(task, snapshot) : "")]] : []),
  ];
  const describe = (task) => ({ class: behind(task) ? "behind" : "", "data-task": task.task, "data-of": task.subtopology });
  const late = snapshot.tasks.filter(behind);
  const caption = late.length ? `Behind the others or without a position: ${late.map((task) => task.task).join(", ")}` : "No task is behind the others.";
  const moves = snapshot.migrations.filter((each) => each.before); // the others are the first of an aggregator
  const behindFirst = [...late, ...snapshot.tasks.filter((task) => !behind(task))];
  replace("task-rows", table(caption, columns, behindFirst, describe),
    ...(moves.length ? [table("The last tasks that continued on another instance", [
      ["When", (each) => moment(each.at)], ["Task", (each) => element("span", { class: "name" }, each.task)],
      ["From", (each) => each.before], ["To", (each) => each.instance],
    ], moves)] : []));
  for (const group of document.querySelectorAll("#diagram [data-subtopology]"))
    group.classList.toggle("wait", late.some((task) => task.subtopology === group.dataset.subtopology));
}

function showMicroBatches(snapshot) {
  const measures = Object.entries(snapshot.aggregator?.measures ?? {});
  replace("batch-rows", ...(measures.length ? [table("The last micro-batch of each sub-topology that had records", [
    ["Sub-topology", ([id]) => id],
    ["Ended", ([id]) => moment(snapshot.aggregator.batches[id]?.at)],
    ["Records", ([, each]) => count(each.records), "number"],
    ["Lasted", ([, each]) => milliseconds(each.seconds), "number"],
    ["Spark job", ([, each]) => milliseconds(each.write_seconds), "number"],
    ["State rows", ([, each]) => (each.state_rows ? count(each.state_rows) : "–"), "number"],
    ["State memory", ([, each]) => (each.state_bytes ? `${count(Math.ceil(each.state_bytes / 1048576))} MB` : "–"), "number"],
    ["Written since the start", ([, each]) => count(each.written), "number"],
    ["Dead-lettered", ([, each]) => count(each.dead_lettered), "number"],
  ], measures)] : []));
}

function showTopics(snapshot) {
  replace("topic-rows", table("The offsets include those of transaction markers.", [
    ["Topic", (topic) => element("span", { class: "name" }, topic.name)],
    ["Role", (topic) => topic.role],
    ["Partitions", (topic) => (topic.partitions === null ? element("span", { class: "bad" }, "does not exist") : count(topic.partitions)), "number"],
    ["Offsets", (topic) => count(topic.offsets), "number"],
    ["Records/s", (topic) => rate(topic.records_per_second), "number"],
  ], snapshot.topics, (topic) => ({ "data-row": topic.name })));
  if (!byId("records-topic").childElementCount)
    replace("records-topic", ...snapshot.topics.map((topic) => element("option", { value: topic.name }, topic.name)));
  for (const topic of snapshot.topics)
    for (const text of document.querySelectorAll(`#diagram [data-rate="${CSS.escape(topic.name)}"]`))
      text.textContent = topic.records_per_second === null ? "" : rate(topic.records_per_second);
}

function showChecks(snapshot) {
  const open = new Set([...document.querySelectorAll("#check-rows details[open]")].map((each) => each.dataset.check));
  const rows = snapshot.checks.map((check) => {
    const wrong = check.observations.filter((row) => row.expected !== row.observed);
    const bars = (history[check.check] ?? []).slice(-40).map((past) =>
      element("i", { class: past.outcome === "passed" || past.outcome === "failed" ? past.outcome : "", title: `${past.at}: ${past.reason}` }));
    const details = element("details", { "data-check": check.check },
      element("summary", {}, element("b", {}, check.check), " ", outcome(check), " ", moment(check.at), ` — ${check.reason}`,
        element("span", { class: "history", "aria-hidden": "true" }, ...bars)),
      ...check.advice.map((advice) => element("p", {}, element("b", {}, "What to do next: "), advice)),
      element("div", {}, table(wrong.length ? "The rows that are wrong" : "All rows", [
        ["What", (row) => row.subject], ["Expected", (row) => String(row.expected)], ["Observed", (row) => String(row.observed)],
        ["Where", (row) => row.where],
      ], (wrong.length ? wrong : check.observations).slice(0, 200))));
    const isNews = outcomes[check.check] !== check.outcome;
    details.open = isNews ? check.outcome !== "passed" : open.has(check.check);
    outcomes[check.check] = check.outcome;
    return details;
  });
  replace("check-rows", ...(rows.length ? rows : [element("p", { class: "dim" }, "No check has run yet.")]));
}

// Marks the topic in which a row is wrong, and else the topics and stores that its subject names: `orders-0`, `quantities[0]`.
function markWrong(snapshot) {
  const rows = snapshot.checks.flatMap((check) => check.observations.filter((row) => row.expected !== row.observed));
  const literal = (name) => name.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
  const named = (pattern, among = rows) => among.some((row) => new RegExp(pattern).test(row.subject));
  const unplaced = rows.filter((row) => !row.topic);
  for (const group of document.querySelectorAll("#diagram [data-topic]"))
    group.classList.toggle("bad", rows.some((row) => row.topic === group.dataset.topic)
      || named(`(?<![\\w.-])${literal(group.dataset.topic)}(-\\d+)?(?![\\w.[-])`, unplaced));
  for (const group of document.querySelectorAll("#diagram .store"))
    group.classList.toggle("bad", named(`(?<![\\w.-])${literal(group.querySelector("title").textContent)}\\[`));
}

function showVerified(snapshot) {
  const cut = snapshot.verified;
  replace("verified", cut
    ? `${count(cut.records)} records and ${count(cut.keys)} keys agreed at the last verified cut.`
    : "No verified cut is stored. Only plain counts have one. The check totals says whether all totals are right.");
}

// Answers "were yesterday's totals verified?".
function showVerifiedDays(days) {
  replace("verified-days", ...(days.length ? [table("The check totals by day", [
    ["Day (UTC)", (each) => each.day, "day"],
    ["Verified", (each) => count(each.passed), "number"],
    ["Wrong", (each) => element("span", { class: each.failed ? "bad" : "" }, count(each.failed)), "number"],
    ["Could not look", (each) => count(each.could_not_look), "number"],
    ["Last result of the day", (each) => (each.last === null ? element("span", { class: "wait" }, "the check did not run")
      : element("span", {}, outcome(each.last), ` ${each.last.at.slice(11, 19)} — ${each.last.reason}`))],
  ], days)] : []));
}

const placeOf = (letter) => `${letter.partition}@${letter.offset}`;

// A group of dead letters of one reason. What is chosen and what is unfolded outlives the next look at the topic.
function deadLetterGroup(reason, same) {
  const open = same.filter((letter) => !letter.redriven);
  const group = element("details", {},
    element("summary", {}, element("b", {}, number.format(same.length)), ` × ${reason || "no reason is given"}: `,
      `${count(open.length)} open, ${count(same.length - open.length)} re-driven`));
  group.open = unfolded.has(reason);
  group.addEventListener("toggle", () => unfolded[group.open ? "add" : "delete"](reason));
  const content = element("div", {});
  if (redriveDag && open.length) {
    const all = element("button", { type: "button" }, "Re-drive all of this reason");
    const some = element("button", { type: "button" }, "Re-drive the chosen ones");
    const chosen = () => open.map(placeOf).filter((place) => chosenLetters.has(place));
    all.addEventListener("click", () => redrive(reason ? { reason } : { letters: open.map(placeOf) }));
    some.addEventListener("click", () => redrive({ letters: chosen() }));
    const note = () => { some.disabled = !chosen().length; };
    content.addEventListener("change", note);
    note();
    content.append(element("p", { class: "actions" }, all, some));
  }
  content.append(table("The newest first", [
    ["State", (letter) => deadLetterState(letter)],
    ["Record", (letter) => element("span", { class: "name" }, letter.origin || `dead-letter partition ${placeOf(letter)}`)],
    ["Task", (letter) => letter.task], ["Time", (letter) => moment(letter.at)],
    ["Key", (letter) => element("pre", {}, letter.key)], ["Value", (letter) => element("pre", {}, letter.value)],
    ["Headers", (letter) => element("pre", {}, Object.entries(letter.headers).map(([name, value]) => `${name}: ${value}`).join("\n"))],
  ], same));
  group.append(content);
  return group;
}

function deadLetterState(letter) {
  const by = letter.redriven;
  if (by) return element("span", { class: "good", title: `run ${by.run}` }, "re-driven by ", by.by, " ", moment(by.at));
  if (!redriveDag) return element("span", { class: "wait" }, "open");
  const place = placeOf(letter);
  const box = element("input", { type: "checkbox", "aria-label": `choose dead letter ${place}` });
  box.checked = chosenLetters.has(place);
  box.addEventListener("change", () => chosenLetters[box.checked ? "add" : "delete"](place));
  return element("label", { class: "wait" }, box, " open");
}

function showDeadLetters(letters) {
  const groups = new Map();
  for (const letter of letters) groups.set(letter.reason, [...(groups.get(letter.reason) ?? []), letter]);
  const rows = [...groups].map(([reason, same]) => deadLetterGroup(reason, same));
  replace("dead-letter-rows", ...(rows.length ? rows : [element("p", { class: "dim" }, "There is no dead letter.")]));
}

// The run shows its plan and waits for an approval. Airflow refuses whoever may not trigger the DAG.
async function redrive(conf) {
  replace("redrive-answer", "…");
  try {
    const run = await trigger(redriveDag, conf);
    const path = `../dags/${encodeURIComponent(redriveDag)}/runs/${encodeURIComponent(run.dag_run_id)}`;
    replace("redrive-answer", "The run ", element("a", { href: path, target: "_top" }, run.dag_run_id),
      " has begun. It shows what becomes of each dead letter, and waits for an approval under Required Actions. The aggregator must not run.");
  } catch (error) {
    replace("redrive-answer", element("span", { class: "bad" }, error.message));
  }
}

async function trigger(dag, conf) {
  const body = JSON.stringify({ logical_date: null, conf });
  const options = { method: "POST", headers: { "Content-Type": "application/json" }, body };
  return (await ask(`../api/v2/dags/${encodeURIComponent(dag)}/dagRuns`, options)).json();
}

// -- the loop

async function refresh() {
  clearTimeout(timer);
  const asked = base;
  try {
    const snapshot = await read(address());
    if (asked === base && Date.now() - slowAt > SLOW_MS) await refreshSlow();
    if (asked !== base) return; // another application was chosen meanwhile
    tell(snapshot.problem);
    showSummary(snapshot);
    showChecks(snapshot);
    showVerified(snapshot);
    showMicroBatches(snapshot);
    if (!snapshot.problem) {
      showTasks(snapshot);
      showTopics(snapshot);
      markWrong(snapshot);
    }
    byId("as-of").textContent = `${snapshot.application_id}, as of ${new Date(snapshot.at).toLocaleTimeString()}`;
  } catch (error) {
    if (asked === base) tell(error.message);
  }
  if (asked === base && !document.hidden) timer = setTimeout(refresh, POLL_MS);
}

async function refreshSlow() {
  const asked = base;
  slowAt = Date.now();
  const results = await read(address("/history"));
  const days = asked === base && await read(address("/verified-days"));
  const letters = asked === base && await read(address("/dead-letters")).catch((error) => error);
  if (asked !== base) return;
  history = {};
  for (const past of results) (history[past.check] ??= []).push(past);
  showVerifiedDays(days);
  if (letters instanceof Error) replace("dead-letter-rows", element("p", { class: "bad" }, letters.message));
  else showDeadLetters(letters);
}

function choosePipeline(name) {
  byId("pipeline").value = name;
  healthDag = `${name}_health`;
  redriveDag = `${name}_redrive`;
  return choose(`api/pipelines/${encodeURIComponent(name)}`, { pipeline: name });
}

function chooseApplication(name, connection) {
  byId("pipeline").value = "";
  byId("application").value = name;
  byId("connection").value = connection;
  healthDag = redriveDag = "";
  return choose(`${applications(connection)}/${encodeURIComponent(name)}`, { application: name, connection });
}

const applications = (connection) => `api/connections/${encodeURIComponent(connection)}/applications`;

// Suggests the consumer groups of the brokers. Without them a person can still type.
async function suggest() {
  try {
    const groups = await read(applications(byId("connection").value));
    replace("groups", ...groups.map((group) => element("option", { value: group })));
  } catch { replace("groups"); }
}

async function choose(of, query) {
  base = of;
  slowAt = 0;
  outcomes = {};
  unfolded = new Set();
  chosenLetters = new Set();
  for (const id of ["task-rows", "batch-rows", "topic-rows", "check-rows", "dead-letter-rows", "redrive-answer", "key-rows", "record-rows", "topic-view", "records-topic", "summary", "diagram", "verified", "verified-days"]) replace(id);
  window.history.replaceState(null, "", `?${new URLSearchParams(query)}`);
  byId("run-checks").hidden = !healthDag;
  let diagram;
  try {
    const text = await (await ask(address("/topology.svg"))).text();
    const svg = new DOMParser().parseFromString(text, "image/svg+xml").documentElement;
    diagram = document.importNode(svg, true);
  } catch (error) {
    diagram = element("p", { class: "bad" }, error.message);
  }
  if (of !== base) return;
  replace("diagram", diagram);
  await refresh();
}

function point(event) {
  if (event.type === "keydown" && event.key !== "Enter") return;
  const target = event.target.closest("[data-topic], [data-subtopology]");
  if (!target) return;
  const { topic, subtopology } = target.dataset;
  const selector = topic ? `[data-row="${CSS.escape(topic)}"]` : `[data-of="${CSS.escape(subtopology)}"]`;
  const rows = document.querySelectorAll(selector);
  for (const row of document.querySelectorAll("tr.chosen")) row.classList.remove("chosen");
  for (const row of rows) row.classList.add("chosen");
  rows[0]?.scrollIntoView({ block: "center" });
}

async function lookUp(event) {
  event.preventDefault();
  const key = byId("key").value;
  replace("key-rows", "Reading the changelog …");
  try {
    const found = await read(address(`/keys?key=${encodeURIComponent(key)}`));
    replace("key-rows", found.length ? table(`What the changelogs hold of ${key}`, [
      ["Changelog", (each) => element("span", { class: "name" }, each.changelog)], ["Key", (each) => each.key],
      ["Value", (each) => element("pre", {}, each.value ?? "deleted")],
      ...(found.some((each) => each.in_state_store !== undefined) ? [["In the state store at the last deployment",
        (each) => (each.in_state_store === null || each.in_state_store === undefined ? "–" : String(each.in_state_store))]] : []),
      ["Last update", (each) => element("span", {}, `partition ${each.partition}, offset ${each.offset}, `, moment(each.at))],
    ], found) : `No changelog has the key ${key}.`);
  } catch (error) {
    replace("key-rows", element("span", { class: "bad" }, error.message));
  }
}

async function showRecords(event) {
  event.preventDefault();
  const asked = new URLSearchParams();
  for (const name of ["topic", "partition", "offset", "containing"])
    if (byId(`records-${name}`).value) asked.set(name, byId(`records-${name}`).value);
  if (byId("records-since").value) asked.set("since", new Date(byId("records-since").value).toISOString());
  if (byId("records-uncommitted").checked) asked.set("uncommitted", "true");
  replace("record-rows", "Reading …");
  try {
    const found = await read(address(`/records?${asked}`));
    replace("record-rows", found.length ? table(`${found.length} ${asked.has("uncommitted") ? "" : "committed "}records, the newest first`, [
      ["Partition", (each) => count(each.partition), "number"], ["Offset", (each) => count(each.offset), "number"],
      ["Timestamp", (each) => each.at], ["Key", (each) => element("pre", {}, each.key ?? "null")],
      ["Value", (each) => element("pre", {}, each.value ?? "null")],
      ["Headers", (each) => element("pre", {}, each.headers.map(([name, value]) => `${name}: ${value}`).join("\n"))],
    ], found) : "There is no such record.");
  } catch (error) {
    replace("record-rows", element("span", { class: "bad" }, error.message));
  }
}

async function examine(topic) {
  replace("topic-view", "Counting …");
  try {
    const view = await read(address(`/topics/${encodeURIComponent(topic)}`));
    const whole = view.partitions.every((each) => each.counted_from === each.start);
    replace("topic-view", table(`${topic}: ${whole ? "all records are counted" : "the newest records are counted"}`, [
      ["Partition", (each) => count(each.partition), "number"],
      ["Leader", (each) => (each.leader < 0 ? element("span", { class: "bad" }, "none") : `broker ${each.leader}`)],
      ["In sync", (each) => element("span", { class: each.in_sync.length < each.replicas.length ? "bad" : "" }, `${each.in_sync.length} of ${each.replicas.length}`)],
      ["Offsets", (each) => `${count(each.start)} to ${count(each.end)}`, "number"],
      ["Uncommitted", (each) => count(each.uncommitted), "number"],
      ["Records", (each) => count(each.records), "number"],
      ["Live", (each) => (each.live === null ? "–" : count(each.live)), "number"],
      ["Busiest keys", (each) => each.busiest.map((key) => `${key.key} (${count(key.records)})`).join(", ")],
      ...(view.partitions.some((each) => each.greatest.length) ? [["Greatest values", (each) => each.greatest.map((key) => `${key.key} (${count(key.value)})`).join(", ")]] : []),
    ], view.partitions), table("Configs", [
      ["Config", (each) => element("span", { class: "name" }, each.name)],
      ["Declared", (each) => each.declared],
      ["In force", (each) => each.observed],
    ], view.configs));
  } catch (error) {
    replace("topic-view", element("span", { class: "bad" }, error.message));
  }
}

async function runChecks() {
  byId("run-checks").disabled = true;
  try {
    const run = await trigger(healthDag, {});
    byId("run-answer").textContent = `The run ${run.dag_run_id} has begun. Results appear below.`;
  } catch (error) {
    byId("run-answer").textContent = error.message;
  }
  byId("run-checks").disabled = false;
}

function adoptTheme() {
  let dark = matchMedia("(prefers-color-scheme: dark)").matches;
  try {
    const outer = window.parent.document.documentElement;
    if (window.parent !== window) dark = outer.classList.contains("dark") || outer.dataset.theme === "dark";
  } catch { /* the frame belongs to another site */ }
  document.documentElement.classList.toggle("dark", dark);
}

async function nameBroken() {
  const broken = await read("api/broken-pipelines");
  byId("broken").textContent = broken.join("\n");
  byId("broken").hidden = !broken.length;
}

async function begin() {
  adoptTheme();
  setInterval(adoptTheme, 2000);
  byId("pipeline").addEventListener("change", (event) => choosePipeline(event.target.value));
  byId("diagram").addEventListener("click", point);
  byId("diagram").addEventListener("keydown", point);
  byId("key-form").addEventListener("submit", lookUp);
  byId("records-form").addEventListener("submit", showRecords);
  byId("examine").addEventListener("click", () => examine(byId("records-topic").value));
  byId("run-checks").addEventListener("click", runChecks);
  byId("other").addEventListener("toggle", suggest);
  byId("connection").addEventListener("change", suggest);
  byId("application-form").addEventListener("submit", (event) => {
    event.preventDefault();
    chooseApplication(byId("application").value.trim(), byId("connection").value.trim());
  });
  document.addEventListener("visibilitychange", () => !document.hidden && base && refresh());
  nameBroken().catch((error) => tell(error.message));  // the other pipelines are shown all the same
  try {
    const names = await read("api/pipelines");
    replace("pipeline", ...names.map((name) => element("option", { value: name }, name)));
    const asked = new URLSearchParams(location.search);
    if (asked.has("application")) {
      byId("other").open = true;
      return await chooseApplication(asked.get("application"), asked.get("connection") ?? byId("connection").value);
    }
    if (!names.length) return tell("No pipeline is declared whose health DAG you may see.");
    await choosePipeline(names.includes(asked.get("pipeline")) ? asked.get("pipeline") : names[0]);
  } catch (error) {
    tell(error.message);
  }
}

begin();
