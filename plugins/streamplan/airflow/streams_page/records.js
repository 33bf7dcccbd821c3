// The topics, their records, the last values of a key, and values as people read them.
import { bad, byId, element, name, table, update } from "./elements.js";
import { ago, count, instant, rate, time } from "./format.js";
import { read } from "./server.js";

const INDENT = "  ";

// JSON with a line for each member. Its tokens stay as they are: a parser would round large numbers.
export function pretty(text) {
  try {
    if (JSON.parse(text) === null || typeof JSON.parse(text) !== "object") return text;
  } catch {
    return text;
  }
  let depth = 0;
  const line = () => `\n${INDENT.repeat(depth)}`;
  return text.match(/"(?:[^"\\]|\\.)*"|[{}[\],:]|[^\s{}[\],:"]+/g).reduce((done, token, n, all) => {
    if (token === "}" || token === "]") {
      depth -= 1;
      return done + (all[n - 1] === "{" || all[n - 1] === "[" ? "" : line()) + token;
    }
    if (token === "{" || token === "[") depth += 1;
    if (token === ",") return done + token + line();
    if (token === ":") return `${done}: `;
    const opens = (token === "{" || token === "[") && all[n + 1] !== "}" && all[n + 1] !== "]";
    return done + token + (opens ? line() : "");
  }, "");
}

// A value with a button that copies it as it is.
export function value(text, ifNone = "null") {
  if (text === null || text === undefined) return element("pre", {}, ifNone);
  return element("div", { class: "value" }, element("pre", {}, pretty(text)),
    element("button", { type: "button", class: "copy", "data-copy": text, title: "Copy the value as it is" }, "Copy"));
}

// A key with its label, and with the moments of its window in the chosen time zone.
export function keyText(key, label) {
  if (key === null || key === undefined) return value(key);
  const text = key.replace(/ (at|of) (\d{4}-\d\d-\d\dT\S+Z)$/, (_, word, moments) => ` ${word} ${moments.split("/").map(time).join("/")}`);
  return element("span", {}, value(text), label ? element("span", { class: "dim" }, label) : "");
}

export function beginCopying() {
  document.addEventListener("click", async (event) => {
    const button = event.target.closest("[data-copy]");
    if (!button) return;
    if (navigator.clipboard) await navigator.clipboard.writeText(button.dataset.copy).catch(() => copyByHand(button));
    else copyByHand(button);
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  });
}

// A page that came over plain HTTP has no clipboard.
function copyByHand(button) {
  const field = element("textarea", {}, button.dataset.copy);
  button.after(field);
  field.select();
  document.execCommand("copy");
  field.remove();
  button.focus();
}

export function showTopics(snapshot, chosen) {
  update("topic-rows", table("The offsets include those of transaction markers.", [
    ["Topic", (topic) => name(topic.name)],
    ["Role", (topic) => topic.role],
    ["Partitions", (topic) => (topic.partitions === null ? element("span", { class: "bad" }, "does not exist") : count(topic.partitions)), "number"],
    ["Offsets", (topic) => count(topic.offsets), "number"],
    ["Records/s", (topic) => rate(topic.records_per_second), "number"],
  ], snapshot.topics, (topic) => ({ "data-row": topic.name, "data-key": `topic ${topic.name}`, class: chosen("topic", topic.name) ? "chosen" : "" })));
  update("records-topic", ...snapshot.topics.map((topic) => element("option", { value: topic.name, "data-key": topic.name }, topic.name)));
}

const FIELDS = ["topic", "partition", "offset", "containing"];

function asked() {
  const query = new URLSearchParams();
  for (const field of FIELDS) if (byId(`records-${field}`).value) query.set(field, byId(`records-${field}`).value);
  if (byId("records-since").value) query.set("since", instant(byId("records-since").value));
  if (byId("records-uncommitted").checked) query.set("uncommitted", "true");
  return query;
}

// Fills the form in from the page's address, where it names a record.
export function recordsOf(query) {
  if (!query.has("topic")) return false;
  for (const field of FIELDS) byId(`records-${field}`).value = query.get(field) ?? "";
  byId("records-since").value = "";
  return byId("records-topic").value !== "";
}

export async function showRecords(base, { quietly = false } = {}) {
  const query = asked();
  if (!quietly) update("record-rows", "Reading …");
  try {
    const found = await read(`${base}/records?${query}`);
    if (String(asked()) !== String(query)) return;
    update("record-rows", found.length ? table({ key: "records", text: `${found.length} ${query.has("uncommitted") ? "" : "committed "}records, the newest first` }, [
      ["Partition", (each) => count(each.partition), "number"], ["Offset", (each) => count(each.offset), "number"],
      ["Timestamp", (each) => element("span", { class: "day" }, time(each.at))], ["Key", (each) => keyText(each.key, each.label)],
      ["Value", (each) => value(each.value)],
      ["Headers", (each) => element("pre", {}, each.headers.map(([header, text]) => `${header}: ${text}`).join("\n"))],
    ], found, (each) => ({ "data-key": `record ${query.get("topic")} ${each.partition}@${each.offset}` })) : "There is no such record.");
  } catch (error) {
    update("record-rows", bad(error.message));
  }
}

export async function examine(base, topic) {
  update("topic-view", "Counting …");
  try {
    const view = await read(`${base}/topics/${encodeURIComponent(topic)}`);
    const whole = view.partitions.every((each) => each.counted_from === each.start);
    update("topic-view", table(`${topic}: ${whole ? "all records are counted" : "the newest records are counted"}`, [
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
      ["Config", (each) => name(each.name)],
      ["Declared", (each) => each.declared],
      ["In force", (each) => each.observed],
    ], view.configs));
  } catch (error) {
    update("topic-view", bad(error.message));
  }
}

export async function lookUp(base, key) {
  update("key-rows", "Reading the changelog …");
  try {
    const found = await read(`${base}/keys?key=${encodeURIComponent(key)}`);
    update("key-rows", found.length ? table(`What the changelogs hold of ${key}`, [
      ["Changelog", (each) => name(each.changelog)], ["Key", (each) => keyText(each.key, each.label)],
      ["Value", (each) => value(each.value, "deleted")],
      ...(found.some((each) => each.in_state_store !== undefined) ? [["In the state store at the last deployment",
        (each) => (each.in_state_store === null || each.in_state_store === undefined ? "–" : String(each.in_state_store))]] : []),
      ["Last update", (each) => element("span", {}, `partition ${each.partition}, offset ${each.offset}, `, ago(each.at))],
    ], found) : `No changelog has the key ${key}.`);
  } catch (error) {
    update("key-rows", bad(error.message));
  }
}
