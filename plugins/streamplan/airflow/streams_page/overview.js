// All applications that a person may see, those with a problem first.
import { element, sparkline, table, update } from "./elements.js";
import { ago, count, duration } from "./format.js";

const KIND = { bad: 0, wait: 1, good: 2 };

function attention(row) {
  if (row.problems.length) return ["bad", row.problems.join("; ")];
  if (row.remarks.length) return ["wait", row.remarks.join("; ")];
  return ["good", "✔ in order"];
}

export function showOverview({ rows, pending }) {
  const ordered = rows.map((row) => [row, ...attention(row)])
    .sort(([one, a], [other, b]) => KIND[a] - KIND[b] || one.pipeline.localeCompare(other.pipeline));
  const red = ordered.filter(([, kind]) => kind === "bad").length;
  const most = Math.max(1, ...rows.flatMap((row) => row.lag_by_hour.filter((value) => value !== null)));
  const state = red ? `${count(red)} of ${count(rows.length)} applications have a problem.` : `${rows.length === 1 ? '1 application' : `${count(rows.length)} applications`}, none with a problem.`;
  const text = pending ? `${state} ${count(pending)} more are looked at.` : state;
  update("overview-rows", rows.length || pending ? table({ key: "overview", text }, [
    ["Application", ([row]) => element("a", { href: `?${new URLSearchParams({ pipeline: row.pipeline })}` }, row.pipeline)],
    ["State", ([, kind, said]) => element("span", { class: kind }, said)],
    ["Oldest waits", ([row]) => duration(row.lag_seconds), "number"],
    ["Lag in the last day", ([row]) => sparkline(row.lag_by_hour, most, duration)],
    ["Greatest", ([row]) => (row.greatest_lag_seconds === null ? "–" : duration(row.greatest_lag_seconds)), "number"],
    ["Totals verified", ([row]) => ago(row.verified)],
    ["Open dead letters", ([row]) => (row.dead_letters ? element("a", { href: `?${new URLSearchParams({ pipeline: row.pipeline })}#dead-letters` }, count(row.dead_letters)) : count(row.dead_letters)), "number"],
    ["Looked at", ([row]) => ago(row.at)],
  ], ordered, ([row, kind]) => ({ "data-key": `application ${row.pipeline}`, class: kind === "bad" ? "attention" : "" }))
    : element("p", { class: "dim" }, "No pipeline is declared whose health DAG you may see."));
}
