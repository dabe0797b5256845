// The state of the page: the server's latest answers, and what is shown. All other modules read and change it here.

export const store = {
  catalogue: { names: [], labels: [], class_names: [], suspects: [] },
  state: null, // counts and diagnostics
  artifactLabels: [], // by image: -1 unknown, 0 without, 1 with
  scores: null,
  order: [], // all images, the most likely first
  proposed: new Set(),
  view: "screen", // or "all"
  screen: [], // the images to label next
  reasons: new Map(), // why, by image
  shown: [], // the images of the view, in order
  cursor: 0, // a place in `shown`
};

export const byId = (id) => document.getElementById(id);

// Every address is relative, so that it includes the token.
export async function ask(path, body) {
  const json = { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) };
  const response = await fetch(path, body === undefined ? {} : json);
  if (!response.ok) {
    const answer = await response.json().catch(() => ({}));
    throw new Error(typeof answer.detail === "string" ? answer.detail : `The server answered ${response.status}.`);
  }
  return response.json();
}
