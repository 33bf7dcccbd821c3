// The drawing: what is wrong or behind in it, the rates of its topics, and its size.
import { byId } from "./elements.js";
import { rate } from "./format.js";
import { isWrong } from "./checks.js";

const literal = (text) => text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
const naming = (text, rest) => new RegExp(`(?<![\\w.-])${literal(text)}${rest}`);

// Marks the topic in which a row is wrong, and else the topics that its subject names: `orders-0`. A store is marked
// with its changelog, and where a subject names it: `quantities[0]`. A sub-topology is marked with its stores.
export function markWrong(snapshot) {
  const rows = snapshot.checks.flatMap((check) => check.observations.filter(isWrong));
  const names = snapshot.topics.map((topic) => topic.name);
  const wrong = new Set(names.filter((topic) => rows.some((row) => (row.topic ? row.topic === topic : naming(topic, "(-\\d+)?(?![\\w.[-])").test(row.subject)))));
  for (const group of document.querySelectorAll("#diagram [data-topic]")) group.classList.toggle("bad", wrong.has(group.dataset.topic));
  for (const group of document.querySelectorAll("#diagram .store")) {
    const store = group.querySelector("title").textContent;
    const changelog = `${snapshot.application_id}-${store}-changelog`;
    group.classList.toggle("bad", wrong.has(changelog) || rows.some((row) => naming(store, "\\[").test(row.subject)));
  }
}

export function markBehind(late) {
  for (const group of document.querySelectorAll("#diagram [data-subtopology]"))
    group.classList.toggle("wait", late.some((task) => task.subtopology === group.dataset.subtopology));
}

export function showRates(snapshot) {
  for (const topic of snapshot.topics)
    for (const text of document.querySelectorAll(`#diagram [data-rate="${CSS.escape(topic.name)}"]`))
      text.textContent = topic.records_per_second === null ? "" : rate(topic.records_per_second);
}

const STEP = 1.3, LARGEST = 3;
let scale = 0; // 0: as wide as there is room for, and never larger than drawn

// Shows the drawing in the chosen size.
export function fit(factor) {
  const svg = byId("diagram").querySelector("svg");
  if (!svg) return;
  const [, , width, height] = svg.getAttribute("viewBox").split(" ").map(Number);
  const room = Math.min(1, (byId("diagram").clientWidth - 16) / width);
  if (factor === undefined) scale = 0;
  else scale = Math.min(LARGEST, Math.max(room / 2, (scale || room) * factor));
  svg.setAttribute("width", Math.round(width * (scale || room)));
  svg.setAttribute("height", Math.round(height * (scale || room)));
  byId("zoom-fit").textContent = `${Math.round((scale || room) * 100)} %`;
}

export function beginZoom() {
  byId("zoom-in").addEventListener("click", () => fit(STEP));
  byId("zoom-out").addEventListener("click", () => fit(1 / STEP));
  byId("zoom-fit").addEventListener("click", () => fit());
  window.addEventListener("resize", () => scale || fit());
}

// What a click or the Enter key in the drawing is on, as the address names it.
export function pointedAt(event) {
  if (event.type === "keydown" && event.key !== "Enter") return null;
  const target = event.target.closest("[data-topic], [data-subtopology]");
  if (!target) return null;
  return target.dataset.topic ? `topic ${target.dataset.topic}` : `subtopology ${target.dataset.subtopology}`;
}
