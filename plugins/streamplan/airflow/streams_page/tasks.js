// The tiles above all, the stream tasks, and the micro-batches.
import { byId, element, name, sparkline, table, update } from "./elements.js";
import { ago, count, duration, milliseconds, now, rate } from "./format.js";

// What the group's members and the heartbeat say together: a process that is stopped stays a member for a while.
export function aggregatorState(snapshot) {
  if (snapshot.problem) return ["unknown", "wait"];
  if (snapshot.members !== null && !snapshot.members.length) return ["not running", "bad"];
  const said = snapshot.aggregator;
  if (!said) return ["runs", "good"];
  if (snapshot.silent) return [`silent for ${duration((now() - new Date(said.at)) / 1000)}`, "bad"];
  const restores = Object.values(said.restorations).find((each) => each.offsets < each.total);
  if (said.state === "starting" && restores) return [`restores, ${Math.floor((100 * restores.offsets) / restores.total)} %`, "wait"];
  if (said.held?.length) return ["holds a record back", "bad"];
  return said.state === "starting" ? ["starts", "wait"] : ["runs", "good"];
}

// Whether nothing processes the records that wait.
const isDown = (snapshot) => snapshot.silent || (snapshot.members !== null && !snapshot.members.length);

const sum = (values) => (values.includes(null) || !values.length ? null : values.reduce((a, b) => a + b, 0));

function checkTile(tile, checks) {
  const failed = checks.filter((check) => check.outcome !== "passed");
  const label = failed.length ? `Checks, ${failed.length} of ${checks.length} not passed` : "Checks";
  if (!checks.length) return tile(label, "none has run", "wait", "", "checks");
  if (!failed.length) return tile(label, `all ${checks.length} passed`, "good", "", "checks");
  return tile(label, failed.map((check) => check.check).join(", "), "bad", failed.map((check) => check.reason).join("\n"), "checks");
}

export function showSummary(snapshot) {
  const ages = snapshot.tasks.map((task) => task.lag_seconds);
  const lag = sum(snapshot.tasks.map((task) => task.lag));
  const most = ages.includes(null) || !ages.length ? null : Math.max(...ages);
  const sources = snapshot.topics.filter((topic) => topic.role === "source").map((topic) => topic.records_per_second);
  const totals = snapshot.checks.find((check) => check.check === "totals");
  const tile = (label, value, kind = "", title = "", section = "tasks") =>
    element("a", { class: "tile", title, href: `#${section}` }, element("span", { class: "dim" }, label), element("b", { class: kind }, value));
  const hasDeadLetters = snapshot.topics.some((topic) => topic.role === "dead-letter");
  const [state, kind] = aggregatorState(snapshot);
  const who = [snapshot.members?.join(", ") ?? "The members of the group cannot be seen.",
    ...(snapshot.aggregator ? [`Its last heartbeat: ${snapshot.aggregator.at} on ${snapshot.aggregator.host}.`, ...(snapshot.aggregator.held ?? [])] : [])].join(" ");
  update("summary",
    tile("Aggregator", state, kind, who),
    tile("Lag", count(lag), lag ? "wait" : "", "Offsets that no task has processed yet"),
    tile("Oldest record waits", duration(most), most > 60 ? "wait" : ""),
    tile("Arriving", rate(sum(sources)), "", "Records that arrive in the input topics"),
    tile("Open dead letters", hasDeadLetters ? count(sum(Object.values(snapshot.dead_letters)) ?? 0) : "–", "",
      Object.entries(snapshot.dead_letters).map(([reason, records]) => `${count(records)} × ${reason}`).join("\n"), "dead-letters"),
    checkTile(tile, snapshot.checks),
    totals?.outcome === "failed" ? tile("Totals", "wrong", "bad", totals.reason, "check-totals")
      : tile("Totals verified", totals?.outcome === "passed" ? ago(totals.at) : "–", totals?.outcome === "passed" ? "" : "wait", "", "totals"));
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

function tasksBehind(snapshot) {
  const known = snapshot.tasks.map((task) => task.lag ?? 0).sort((a, b) => a - b);
  const median = known[Math.floor(known.length / 2)] ?? 0;
  const down = isDown(snapshot);
  return snapshot.tasks.filter((task) => task.lag === null || (task.lag > 0 && (down || task.lag > 4 * median || task.lag_seconds > 60)));
}

function heading(snapshot, late) {
  if (!late.length) return isDown(snapshot) ? "Nothing waits, and no aggregator runs." : "No task is behind.";
  const named = late.map((task) => task.task).join(", ");
  const waiting = sum(late.map((task) => task.lag ?? 0));
  if (isDown(snapshot)) return `No aggregator processes the records that wait (offsets: ${count(waiting)}): ${named}`;
  return `Behind the others or without a position: ${named}`;
}

export function showTasks(snapshot, chosen) {
  const late = tasksBehind(snapshot);
  const isLate = new Set(late);
  const most = Math.max(1, ...snapshot.tasks.flatMap((task) => task.lag_by_minute));
  const columns = [
    ["Task", (task) => name(task.task)],
    ["Reads", (task) => name(task.inputs.map((input) => `${input.topic}-${input.partition}`).join(", "))],
    ["Records/s", (task) => rate(task.records_per_second), "number"],
    ["Lag", (task) => (task.lag === null ? "no position" : count(task.lag)), "number"],
    ["Oldest waits", (task) => duration(task.lag_seconds), "number"],
    ["Lag by minute", (task) => sparkline(task.lag_by_minute, most, count)],
    ["Instance", (task) => (task.instance === null ? "–" : `${task.instance} on ${task.host}`)],
    ["Last commit", (task) => ago(task.last_commit)],
    ...(late.length ? [["Why it is behind", (task) => (isLate.has(task) ? reason(task, snapshot) : "")]] : []),
  ];
  const classOf = (task) => [isLate.has(task) ? "behind" : "", chosen("subtopology", task.subtopology) ? "chosen" : ""].join(" ").trim();
  const describe = (task) => ({ class: classOf(task), "data-key": `task ${task.subtopology} ${task.task}`, "data-of": task.subtopology });
  const moves = snapshot.migrations.filter((each) => each.before); // the others are the first of an aggregator
  const behindFirst = [...late, ...snapshot.tasks.filter((task) => !isLate.has(task))];
  update("task-rows", table({ key: "tasks", text: heading(snapshot, late) }, columns, behindFirst, describe),
    ...(moves.length ? [table({ key: "moves", text: "The last tasks that continued on another instance" }, [
      ["When", (each) => ago(each.at)], ["Task", (each) => name(each.task)],
      ["From", (each) => each.before], ["To", (each) => each.instance],
    ], moves)] : []));
  return late;
}

export function showMicroBatches(snapshot) {
  const measures = Object.entries(snapshot.aggregator?.measures ?? {});
  update("batch-rows", ...(measures.length ? [table("The last micro-batch of each sub-topology that had records", [
    ["Sub-topology", ([id]) => id],
    ["Ended", ([id]) => ago(snapshot.aggregator.batches[id]?.at)],
    ["Records", ([, each]) => count(each.records), "number"],
    ["Lasted", ([, each]) => milliseconds(each.seconds), "number"],
    ["Spark job", ([, each]) => milliseconds(each.write_seconds), "number"],
    ["State rows", ([, each]) => (each.state_rows ? count(each.state_rows) : "–"), "number"],
    ["State memory", ([, each]) => (each.state_bytes ? `${count(Math.ceil(each.state_bytes / 1048576))} MB` : "–"), "number"],
    ["Written since the start", ([, each]) => count(each.written), "number"],
    ["Dead-lettered", ([, each]) => count(each.dead_lettered), "number"],
  ], measures)] : []));
}
