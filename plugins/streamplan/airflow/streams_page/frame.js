// The page in Airflow's frame: its address, the links that lead out of it, and Airflow's colours.
//
// Airflow keeps the address of the page in its own, below /plugin/streams-page, and opens the page with it again. It
// looks at it when the page is loaded only, so the page notes there what it shows. The frame may neither navigate the
// window nor open one. A link that is made in the document around it may.

const framed = () => {
  try {
    return window.parent !== window && window.parent.document ? window.parent : null;
  } catch {
    return null; // the frame belongs to another site
  }
};

const outer = framed();
const ENTRY = /^(.*\/plugin\/[^/]+)(\/.*)?$/;

// The address in the browser's address bar that shows the page at `url`.
function outside(url) {
  const [, entry] = outer?.location.pathname.match(ENTRY) ?? [];
  return entry === undefined ? url.href : `${entry}${url.pathname}${url.search}${url.hash}`;
}

const inner = (url) => url.origin === location.origin && url.pathname === location.pathname;

let noted = "";

// Writes into Airflow's address what is shown now.
export function note() {
  noted = outside(new URL(location.href));
  if (outer && ENTRY.test(outer.location.pathname)) outer.history.replaceState(outer.history.state, "", noted);
}

// Whether somebody has chosen "Streams" in Airflow's navigation while the page was shown: it is not loaded anew.
export function wasCalledAgain() {
  return Boolean(outer && noted && /\/plugin\/[^/]+\/?$/.test(outer.location.pathname));
}

function openOutside(href, inNewTab) {
  const from = outer ? outer.document : document;
  const link = from.createElement("a");
  link.href = href;
  if (inNewTab) Object.assign(link, { target: "_blank", rel: "noopener" });
  from.body.append(link);
  link.click();
  link.remove();
}

// Follows the links of the page. `show` shows what the page's own address says.
export function followLinks(show) {
  const follow = (event) => {
    const anchor = event.target.closest?.("a[href]");
    if (!anchor || event.button > 1) return;
    const url = new URL(anchor.href);
    const inNewTab = event.button === 1 || event.ctrlKey || event.metaKey || event.shiftKey;
    if (inner(url) && !inNewTab) {
      event.preventDefault();
      if (url.href !== location.href) history.pushState(null, "", url);
      show();
    } else if (outer) {
      event.preventDefault();
      openOutside(inner(url) ? outside(url) : url.href, inNewTab);
    }
  };
  document.addEventListener("click", follow);
  document.addEventListener("auxclick", follow);
  window.addEventListener("popstate", show);
}

// Airflow's own colours and font, by the names that its style sheet has for them.
const ADOPTED = { "--back": "bg", "--card": "bg-subtle", "--line": "border", "--text": "fg", "--dim": "fg-muted", "--link": "blue-fg" };

export function adoptTheme() {
  const own = document.documentElement;
  if (!outer) return own.classList.toggle("dark", matchMedia("(prefers-color-scheme: dark)").matches);
  const root = outer.document.documentElement, style = outer.getComputedStyle(root);
  own.classList.toggle("dark", root.classList.contains("dark") || root.dataset.theme === "dark");
  for (const [ours, theirs] of Object.entries(ADOPTED)) {
    const value = style.getPropertyValue(`--chakra-colors-${theirs}`);
    if (value) own.style.setProperty(ours, value);
  }
  own.style.setProperty("--font", outer.getComputedStyle(outer.document.body).fontFamily);
}
