// Actions: label, undo, next screen, accept a suggested cluster, finish.

import { firstSeen, focusTile, isHereSeen, moveTo, redrawTiles } from "./grid.js";
import { say, showError, showPending, showSaved, showState } from "./header.js";
import { ask, byId, store } from "./store.js";
import { loadRanking, setFilter, setView, useScreen } from "./views.js";

let pending = 0; // steps that are not saved yet
let sending = Promise.resolve(); // requests are sent one after the other

const refresh = () => loadRanking(() => pending > 0);

function send(path, body) {
  showSaved("saving", "Saving …");
  showPending();
  pending += 1;
  const answer = sending.then(() => ask(path, body));
  sending = answer.then(
    (found) => {
      pending -= 1;
      showError(null);
      if (!pending) showSaved("saved", `Saved in ${(found.state ?? found).saved}`);
      if (!pending) refresh().then(redrawTiles, showError); // every label changes what is proposed
    },
    async (error) => {
      pending -= 1;
      showError(error);
      showSaved("failed", "Not saved.");
      await ask("api/state").then(showState).catch(showError);
      await refresh().catch(showError); // show what the server has
      redrawTiles();
    },
  );
  return answer;
}

export function label(images, hasArtifact) {
  if (!images.length) return Promise.resolve();
  for (const image of images) store.artifactLabels[image] = hasArtifact ? 1 : 0;
  redrawTiles();
  const words = hasArtifact ? "with the artifact" : "without the artifact";
  say(images.length === 1 ? `${store.catalogue.names[images[0]]} ${words}` : `${images.length} images ${words}`);
  return send("api/labels", { images, has_artifact: hasArtifact }).then(showState, () => {});
}

// Only visible images are labelled: after scrolling, the first key press only moves the cursor into view.
export function labelHere(hasArtifact) {
  if (!store.shown.length) return;
  if (!isHereSeen()) {
    moveTo(firstSeen());
    say("Moved to the first visible image. Press again to label it.");
    return;
  }
  label([store.shown[store.cursor]], hasArtifact);
  moveTo(store.cursor + 1);
}

export function undo() {
  return send("api/undo", {}).then(async (undone) => {
    showState(undone.state);
    await refresh();
    redrawTiles();
    const place = store.shown.indexOf(undone.images[0]);
    if (place >= 0) moveTo(place);
    say(undone.images.length ? "Undone." : "There is nothing to undo.");
  }, () => {});
}

export async function nextScreen() {
  await sending;
  useScreen(await ask("api/screen/next", {}));
  setView("screen");
  moveTo(0); // first of all: a key that is pressed now is for the first image
  await refresh();
  redrawTiles();
}

export async function restWithout() {
  if (store.view !== "screen") return;
  label(store.screen.filter((image) => store.artifactLabels[image] === -1), false);
  await nextScreen();
}

export async function showAll() {
  await sending;
  await refresh();
  if (byId("filter").value === "all") setView("all");
  else setFilter("all"); // reset the filter of an accepted cluster
}

// The cluster's images are labelled unseen: show them at once for review.
export async function acceptSuggestion(suspect) {
  showState(await send("api/suspects", { suspect }));
  await refresh();
  setFilter("yes");
  focusTile();
  say(`${store.state.yes} images with the artifact`);
}

export async function finish() {
  await sending;
  say("Waiting for the diagnostics.");
  const done = await ask("api/finish", {});
  showError(null);
  showState(await ask("api/state")); // with the diagnostics of the current labels
  for (const [part, text] of Object.entries(done)) byId(`finished-${part}`).textContent = text;
  byId("finished").showModal();
}
