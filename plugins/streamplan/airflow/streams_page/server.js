// Questions to the server.

export async function ask(path, options) {
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

export const read = async (path) => (await ask(path)).json();

export async function trigger(dag, conf) {
  const body = JSON.stringify({ logical_date: null, conf });
  const options = { method: "POST", headers: { "Content-Type": "application/json" }, body };
  return (await ask(`../api/v2/dags/${encodeURIComponent(dag)}/dagRuns`, options)).json();
}

// Addresses in Airflow, beside the page.
export const dagAddress = (dag) => `../dags/${encodeURIComponent(dag)}`;
export const runAddress = (dag, run) => `${dagAddress(dag)}/runs/${encodeURIComponent(run)}`;
export const taskAddress = (dag, run, task) => `${runAddress(dag, run)}/tasks/${encodeURIComponent(task)}`;
export const docsAddress = (page) => `../streamplan/${page.split("/").map(encodeURIComponent).join("/")}`;
