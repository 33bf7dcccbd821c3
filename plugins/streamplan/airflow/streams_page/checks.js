// The last results of the checks, their history, and the days whose totals were verified.
import { byId, element, name, table, update } from "./elements.js";
import { ago, count, time } from "./format.js";
import { docsAddress, taskAddress, runAddress } from "./server.js";

const OUTCOME = { passed: ["good", "✔ passed"], failed: ["bad", "✘ failed"], "could not look": ["wait", "! could not look"] };
const SHOWN_ROWS = 200;

export function outcome(result) {
  const [kind, text] = OUTCOME[result.outcome];
  return element("span", { class: kind }, text);
}

export const isWrong = (row) => row.expected !== row.observed;

// Text in which each record that is named leads to that record: `orders-0 offset 17`.
function withRecords(text, topics) {
  const parts = [];
  let rest = 0;
  for (const found of String(text ?? "").matchAll(/([\w.-]+)-(\d+)(?: offset |@)(\d(?:[\d,]*\d)?)/g)) {
    const [whole, topic, partition, offset] = found;
    if (!topics.has(topic)) continue;
    const query = new URLSearchParams(location.search);
    query.delete("row");
    for (const [key, value] of Object.entries({ topic, partition, offset: offset.replaceAll(",", "") })) query.set(key, value);
    parts.push(text.slice(rest, found.index), element("a", { href: `?${query}#records` }, whole));
    rest = found.index + whole.length;
  }
  return element("span", {}, ...parts, String(text ?? "").slice(rest));
}

// Where a result comes from: the run and the task with its log in Airflow, and the page of the run in the Data Docs.
function origin(check) {
  const [dag, run, task] = check.task ?? [];
  const links = [
    ...(run ? [element("a", { href: runAddress(dag, run) }, "Run"), element("a", { href: taskAddress(dag, run, task) }, "Log")] : []),
    ...(check.data_docs ? [element("a", { href: docsAddress(check.data_docs) }, "Data Docs")] : []),
  ];
  return links.length ? [element("p", { class: "actions" }, ...links)] : [];
}

export function showChecks(snapshot, history) {
  const topics = new Set(snapshot.topics.map((topic) => topic.name));
  const bars = (check) => (history[check.check] ?? []).slice(-40).map((past) =>
    element("i", { class: past.outcome === "passed" || past.outcome === "failed" ? past.outcome : "", title: `${time(past.at)}: ${past.reason}` }));
  const rows = snapshot.checks.map((check) => {
    const wrong = check.observations.filter(isWrong);
    const details = element("details", { id: `check-${check.check}`, "data-opens": check.outcome },
      element("summary", {}, element("b", {}, check.check), " ", outcome(check), " ", ago(check.at), ` — ${check.reason}`,
        element("span", { class: "history", "aria-hidden": "true" }, ...bars(check))),
      ...check.advice.map((advice) => element("p", { class: "next" }, element("b", {}, "What to do next: "), advice)),
      ...origin(check),
      table(wrong.length ? "The rows that are wrong" : "All rows", [
        ["What", (row) => withRecords(row.subject, topics)], ["Expected", (row) => String(row.expected)], ["Observed", (row) => String(row.observed)],
        ["Where", (row) => withRecords(row.where, topics)],
      ], (wrong.length ? wrong : check.observations).slice(0, SHOWN_ROWS)));
    details.open = check.outcome !== "passed";
    return details;
  });
  update("check-rows", ...(rows.length ? rows : [element("p", { class: "dim" }, "No check has run yet.")]));
}

export function showVerified(snapshot) {
  const cut = snapshot.verified;
  byId("verified").textContent = cut
    ? `${count(cut.records)} records and ${count(cut.keys)} keys agreed at the last verified cut.`
    : "No verified cut is stored. Only plain counts have one. The check totals says whether all totals are right.";
}

// Answers "were yesterday's totals verified?".
export function showVerifiedDays(days) {
  update("verified-days", ...(days.length ? [table("The check totals by day", [
    ["Day (UTC)", (each) => each.day, "day"],
    ["Verified", (each) => count(each.passed), "number"],
    ["Wrong", (each) => element("span", { class: each.failed ? "bad" : "" }, count(each.failed)), "number"],
    ["Could not look", (each) => count(each.could_not_look), "number"],
    ["Last result of the day", (each) => (each.last === null ? element("span", { class: "wait" }, "the check did not run")
      : element("span", {}, outcome(each.last), ` ${time(each.last.at)} — ${each.last.reason}`))],
  ], days)] : []));
}
