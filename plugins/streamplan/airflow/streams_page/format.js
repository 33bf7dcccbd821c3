// Numbers and times as people read them. All ages are those of one clock: the server's, at the last answer.
import { element } from "./elements.js";

const number = new Intl.NumberFormat("en");
let ahead = 0; // of the server's clock, in ms

export const setClock = (at) => { ahead = new Date(at) - Date.now(); };
export const now = () => Date.now() + ahead;

export const count = (value) => (value === null ? "unknown" : number.format(value));
export const milliseconds = (seconds) => `${number.format(Math.round(seconds * 1000))} ms`;
export const rate = (value) => (value === null ? "…" : `${number.format(value)}/s`);

export function duration(seconds) {
  if (seconds === null) return "unknown";
  for (const [size, unit] of [[86400, "days"], [3600, "h"], [60, "min"]])
    if (seconds >= 2 * size) return `${Math.round(seconds / size)} ${unit}`;
  return `${number.format(Math.round(seconds * 10) / 10)} s`;
}

// The time zone that is chosen in Airflow, which it keeps under this name.
export function zone() {
  try {
    const chosen = (localStorage.getItem("timezone") ?? "").replaceAll('"', "");
    return new Intl.DateTimeFormat("en", { timeZone: chosen || undefined }).resolvedOptions().timeZone;
  } catch {
    return "UTC"; // it is no time zone, or nothing may be kept
  }
}

// As Airflow writes times: 2026-03-08 09:30:00.
export function time(at) {
  const moment = new Date(at);
  if (isNaN(moment)) return String(at);
  const shown = new Intl.DateTimeFormat("sv-SE", { timeZone: zone(), dateStyle: "short", timeStyle: "medium" });
  return shown.format(moment);
}

// The moment that a person has written in the chosen time zone, ISO 8601 in UTC.
export function instant(local) {
  const asUtc = new Date(`${local}Z`);
  const offset = new Date(`${time(asUtc).replace(" ", "T")}Z`) - asUtc;
  return new Date(asUtc - offset).toISOString();
}

export function ago(at) {
  if (!at) return "–";
  return element("time", { datetime: at, title: `${time(at)} ${zone()}` }, `${duration(Math.max((now() - new Date(at)) / 1000, 0))} ago`);
}
