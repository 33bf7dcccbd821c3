// Dead letters by reason, and the re-drive that processes them again.
import { bad, element, name, table, update } from "./elements.js";
import { ago, count, time } from "./format.js";
import { value } from "./records.js";
import { read, runAddress, trigger } from "./server.js";

let chosenLetters = new Set(); // the places of dead letters that were chosen
let shownLetters = [];
let redriveDag = ""; // the DAG that processes dead letters again; empty where none does

const placeOf = (letter) => `${letter.partition}@${letter.offset}`;

export function forgetDeadLetters(dag) {
  chosenLetters = new Set();
  shownLetters = [];
  redriveDag = dag;
}

function stateOf(letter) {
  const by = letter.redriven;
  if (by) return element("span", { class: "good", title: `run ${by.run}` }, "re-driven by ", by.by, " ", ago(by.at));
  if (!redriveDag) return element("span", { class: "wait" }, "open");
  const place = placeOf(letter);
  return element("label", { class: "wait" }, element("input", { type: "checkbox", "data-place": place, "aria-label": `choose dead letter ${place}` }), " open");
}

const openPlaces = (same) => same.filter((letter) => !letter.redriven).map(placeOf);

// A group of dead letters of one reason.
function group(reason, same) {
  const open = openPlaces(same);
  const made = element("details", { "data-key": `reason ${reason}` },
    element("summary", {}, element("b", {}, count(same.length)), ` × ${reason || "no reason is given"}: `,
      `${count(open.length)} open, ${count(same.length - open.length)} re-driven`));
  if (redriveDag && open.length) {
    const some = element("button", { type: "button", "data-redrive": "chosen", "data-reason": reason }, "Re-drive the chosen ones");
    some.disabled = !open.some((place) => chosenLetters.has(place));
    made.append(element("p", { class: "actions" },
      element("button", { type: "button", "data-redrive": "all", "data-reason": reason }, "Re-drive all of this reason"), some));
  }
  made.append(table("The newest first", [
    ["State", stateOf],
    ["Record", (letter) => name(letter.origin || `dead-letter partition ${placeOf(letter)}`)],
    ["Task", (letter) => letter.task], ["Time", (letter) => ago(letter.at)],
    ["Key", (letter) => value(letter.key)], ["Value", (letter) => value(letter.value)],
    ["Headers", (letter) => element("pre", {}, Object.entries(letter.headers).map(([header, text]) => `${header}: ${text}`).join("\n"))],
  ], same, (letter) => ({ "data-key": `letter ${placeOf(letter)}` })));
  return made;
}

export function showDeadLetters(letters = shownLetters) {
  shownLetters = letters;
  const groups = new Map();
  for (const letter of letters) groups.set(letter.reason, [...(groups.get(letter.reason) ?? []), letter]);
  const rows = [...groups].map(([reason, same]) => group(reason, same));
  update("dead-letter-rows", ...(rows.length ? rows : [element("p", { class: "dim" }, "There is no dead letter.")]));
}

export function beginRedriving(container) {
  container.addEventListener("change", ({ target }) => {
    if (!target.dataset.place) return;
    chosenLetters[target.checked ? "add" : "delete"](target.dataset.place);
    showDeadLetters();
  });
  container.addEventListener("click", ({ target }) => {
    const button = target.closest("[data-redrive]");
    if (!button) return;
    const { reason } = button.dataset;
    const open = openPlaces(shownLetters.filter((letter) => letter.reason === reason));
    if (button.dataset.redrive === "chosen") redrive({ letters: open.filter((place) => chosenLetters.has(place)) });
    else redrive(reason ? { reason } : { letters: open });
  });
}

// The run shows its plan and waits for an approval. Airflow refuses whoever may not trigger the DAG.
async function redrive(conf) {
  update("redrive-answer", "…");
  try {
    const run = await trigger(redriveDag, conf);
    update("redrive-answer", "The run ", element("a", { href: runAddress(redriveDag, run.dag_run_id) }, run.dag_run_id),
      " has begun. It shows what becomes of each dead letter, and waits for an approval under Required Actions. The aggregator must not run.");
  } catch (error) {
    update("redrive-answer", bad(error.message));
  }
}

const STAGES = {
  planned: ["wait", "has a plan and waits for an approval under Required Actions"],
  nothing: ["wait", "had nothing to do"],
  refused: ["bad", "was refused"],
  done: ["good", "has processed what was approved"],
};

// What came of the last re-drive. Whether a plan was approved, Airflow alone says.
export async function showRedrive(last) {
  if (!last) return update("redrive-outcome");
  if (last instanceof Error) return update("redrive-outcome", bad(last.message));
  const dag = redriveDag;
  let [kind, said] = STAGES[last.stage];
  if (last.stage === "planned") {
    const run = await read(`../api/v2/dags/${encodeURIComponent(redriveDag)}/dagRuns/${encodeURIComponent(last.run)}`).catch(() => null);
    if (run && !["queued", "running"].includes(run.state)) [kind, said] = ["wait", "ended, and its plan was not approved: nothing was done"];
  }
  if (dag !== redriveDag) return; // another application was chosen meanwhile
  update("redrive-outcome", element("p", { class: kind }, "The last re-drive, ", element("a", { href: runAddress(redriveDag, last.run) }, last.run), `, ${said} (${time(last.at)}).`),
    element("pre", {}, last.text));
}
