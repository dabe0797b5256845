// What the page holds: what the program told last, and what is shown of it. All other modules read and change it here.

export const held = {
  catalogue: { names: [], labels: [], class_names: [], suspects: [] },
  state: null, // counts and judgement
  marks: [], // -1 unknown, 0 without, 1 with, by image
  scores: null,
  order: [], // all images, the likeliest first
  proposed: new Set(),
  view: "screen", // or "all"
  screen: [], // the images to mark next
  reasons: new Map(), // why, by image
  shown: [], // the images of the view, in order
  cursor: 0, // a place in `shown`
};

export const byId = (id) => document.getElementById(id);

// Every address is relative, so that it carries the token by itself.
export async function ask(path, body) {
  const json = { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) };
  const response = await fetch(path, body === undefined ? {} : json);
  if (!response.ok) {
    const told = await response.json().catch(() => ({}));
    throw new Error(typeof told.detail === "string" ? told.detail : `The page's program answered ${response.status}.`);
  }
  return response.json();
}
