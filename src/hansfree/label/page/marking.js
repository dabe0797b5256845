// What a person does: mark, undo, go on, take a suspected cluster, finish.

import { firstSeen, focusTile, isHereSeen, moveTo, redrawTiles } from "./grid.js";
import { say, showError, showJudging, showSaved, showState } from "./header.js";
import { ask, byId, held } from "./held.js";
import { loadRanking, setFilter, setView, useScreen } from "./views.js";

let pending = 0; // steps that are not saved yet
let sending = Promise.resolve(); // marks go one after the other, in the order in which they were made

const refresh = () => loadRanking(() => pending > 0);

function send(path, body) {
  showSaved("saving", "Saving …");
  showJudging();
  pending += 1;
  const answer = sending.then(() => ask(path, body));
  sending = answer.then(
    (found) => {
      pending -= 1;
      showError(null);
      if (!pending) showSaved("saved", `Saved in ${(found.state ?? found).saved}`);
      if (!pending) refresh().then(redrawTiles, showError); // what is proposed changes with every mark
    },
    async (error) => {
      pending -= 1;
      showError(error);
      showSaved("failed", "Not saved.");
      await ask("api/state").then(showState).catch(showError);
      await refresh().catch(showError); // show what the program really holds
      redrawTiles();
    },
  );
  return answer;
}

export function mark(images, hasArtifact) {
  if (!images.length) return Promise.resolve();
  for (const image of images) held.marks[image] = hasArtifact ? 1 : 0;
  redrawTiles();
  const words = hasArtifact ? "with the artifact" : "without the artifact";
  say(images.length === 1 ? `${held.catalogue.names[images[0]]} ${words}` : `${images.length} images ${words}`);
  return send("api/marks", { images, has_artifact: hasArtifact }).then(showState, () => {});
}

// Nobody marks what is not seen: after scrolling, the first press only brings the cursor to where a person looks.
export function markHere(hasArtifact) {
  if (!held.shown.length) return;
  if (!isHereSeen()) {
    moveTo(firstSeen());
    say("Moved to the first image that is seen. Press again to mark it.");
    return;
  }
  mark([held.shown[held.cursor]], hasArtifact);
  moveTo(held.cursor + 1);
}

export function undo() {
  return send("api/undo", {}).then(async (undone) => {
    showState(undone.state);
    await refresh();
    redrawTiles();
    const place = held.shown.indexOf(undone.images[0]);
    if (place >= 0) moveTo(place);
    say(undone.images.length ? "Undone." : "There is nothing to undo.");
  }, () => {});
}

export async function nextScreen() {
  await sending;
  useScreen(await ask("api/screen/next", {}));
  setView("screen");
  moveTo(0); // before anything else is waited for: a key that comes now is for the first image
  await refresh();
  redrawTiles();
}

export async function restWithout() {
  if (held.view !== "screen") return;
  mark(held.screen.filter((image) => held.marks[image] === -1), false);
  await nextScreen();
}

export async function showAll() {
  await sending;
  await refresh();
  if (byId("filter").value === "all") setView("all");
  else setFilter("all"); // what was chosen for the images of a cluster is forgotten by then
}

// The cluster's images are marked unseen: show them at once, so that a wrong one is found, or all are undone.
export async function takeSuspect(suspect) {
  showState(await send("api/suspects", { suspect }));
  await refresh();
  setFilter("yes");
  focusTile();
  say(`${held.state.yes} images with the artifact`);
}

export async function finish() {
  await sending;
  say("Waiting for the doctor.");
  const done = await ask("api/finish", {});
  showError(null);
  showState(await ask("api/state")); // what the doctor says is of these marks now
  for (const [part, text] of Object.entries(done)) byId(`finished-${part}`).textContent = text;
  byId("finished").showModal();
}
