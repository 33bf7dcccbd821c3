// Elements of the page, and how they are brought up to date in place.

export const byId = (id) => document.getElementById(id);

export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children.map((child) => child ?? "–"));
  return made;
}

// A column is [heading, function of a row, class]. A cell is text or an element. A row that can move to another place
// has a `data-key`.
export function table(caption, columns, rows, describe = () => ({})) {
  const head = element("tr", {}, ...columns.map(([heading, , kind]) => element("th", { scope: "col", class: kind ?? "" }, heading)));
  const body = rows.map((row) =>
    element("tr", describe(row), ...columns.map(([, cell, kind]) => element("td", { class: kind ?? "" }, cell(row)))));
  return element("div", { class: "scroll", "data-key": caption.key ?? "" },
    element("table", {}, element("caption", {}, caption.text ?? caption), element("thead", {}, head), element("tbody", {}, ...body)));
}

export const name = (text) => element("span", { class: "name" }, text);
export const bad = (text) => element("p", { class: "bad" }, text);

// Makes the children of an element what is wanted. Elements that stay are not made anew, so that focus, selection and
// what a person has unfolded, ticked or typed stay, too.
export function update(id, ...wanted) {
  patchChildren(typeof id === "string" ? byId(id) : id, wanted.map((each) => (typeof each === "string" ? new Text(each) : each)));
}

const keyOf = (node) => node.dataset?.key || node.id || "";
const alike = (one, other) => one.nodeName === other.nodeName && keyOf(one) === keyOf(other);

function patchChildren(parent, wanted) {
  const keyed = new Map([...parent.children].filter(keyOf).map((child) => [keyOf(child), child]));
  const kept = new Set(wanted.map((each) => keyed.get(keyOf(each))));
  for (const child of keyed.values()) if (!kept.has(child)) child.remove();
  let place = parent.firstChild;
  for (const each of wanted) {
    const known = keyed.get(keyOf(each));
    if (known && alike(known, each)) {
      if (known === place) place = place.nextSibling;
      else move(parent, known, place);
      patch(known, each);
    } else if (place && !keyOf(place) && !keyOf(each) && alike(place, each)) {
      patch(place, each);
      place = place.nextSibling;
    } else parent.insertBefore(each, place);
  }
  while (place) {
    const next = place.nextSibling;
    place.remove();
    place = next;
  }
}

// `moveBefore` keeps the focus. A browser without it is given the focus back.
function move(parent, child, place) {
  if (parent.moveBefore) return parent.moveBefore(child, place);
  const focused = child.contains(document.activeElement) ? document.activeElement : null;
  parent.insertBefore(child, place);
  focused?.focus({ preventScroll: true });
}

// What a person folds stays folded, until the element says by `data-opens` that there is news.
function patch(known, wanted) {
  if (known.nodeType === Node.TEXT_NODE) {
    if (known.data !== wanted.data) known.data = wanted.data;
    return;
  }
  const folds = known.dataset.opens === wanted.dataset.opens;
  for (const { name: attribute } of [...known.attributes])
    if (!wanted.hasAttribute(attribute) && !(attribute === "open" && folds)) known.removeAttribute(attribute);
  for (const { name: attribute, value } of wanted.attributes)
    if (known.getAttribute(attribute) !== value && !(attribute === "open" && folds)) known.setAttribute(attribute, value);
  patchChildren(known, [...wanted.childNodes]);
}

// A line of the last values, all lines to one scale, so that the one that lags stands out. null: not known.
export function sparkline(values, most, said) {
  const known = values.filter((value) => value !== null);
  if (known.length < 2) return "";
  const width = 90, height = 16, step = width / (values.length - 1);
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  const label = `from ${said(known[0])} to ${said(known.at(-1))}, at most ${said(Math.max(...known))}`;
  for (const [attribute, value] of Object.entries({ width, height, class: "sparkline", role: "img", "aria-label": label })) svg.setAttribute(attribute, value);
  const title = document.createElementNS("http://www.w3.org/2000/svg", "title");
  title.textContent = label;
  const line = document.createElementNS("http://www.w3.org/2000/svg", "polyline");
  const at = (value, n) => `${(n * step).toFixed(1)},${(height - 1 - (value / Math.max(most, 1e-9)) * (height - 2)).toFixed(1)}`;
  line.setAttribute("points", values.map((value, n) => (value === null ? "" : at(value, n))).filter(Boolean).join(" "));
  svg.append(title, line);
  return svg;
}
