// The labelling page: keys and buttons, and the start. No library, no build step.

import { focusTile, moveTo, redrawTiles, steps } from "./grid.js";
import { showError, showSaved, showState } from "./header.js";
import { toggleHeatmap } from "./heatmaps.js";
import { ask, byId, store } from "./store.js";
import { finish, label, labelHere, nextScreen, restWithout, showAll, undo } from "./labelling.js";
import { showSuggestions } from "./suggestions.js";
import { loadRanking, setFilter, setView, useScreen } from "./views.js";

const showScreen = () => setView("screen");
const showKeys = () => byId("keys").showModal();
const keys = {
  " ": () => labelHere(true),
  n: () => labelHere(false),
  u: undo,
  r: restWithout,
  Enter: nextScreen,
  h: toggleHeatmap,
  1: () => { showScreen(); focusTile(); },
  2: () => showAll().then(focusTile),
  "?": showKeys,
  Home: () => moveTo(0),
  End: () => moveTo(store.shown.length - 1),
};
const buttons = { undo, finish, rest: restWithout, next: nextScreen, help: showKeys, "tab-all": showAll, "tab-screen": showScreen };

const run = (action) => Promise.resolve().then(action).catch(showError);

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  const isControl = event.target.closest("button, select");
  if (isControl && (event.key === " " || event.key === "Enter" || event.key.startsWith("Arrow"))) return;
  if (event.target.closest("select")) return;
  const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
  const action = key in steps ? () => moveTo(store.cursor + steps[key]()) : keys[key];
  if (!action) return;
  event.preventDefault();
  if (event.repeat && !(key in steps)) return; // a key that is held down labels once
  run(action);
});

for (const [id, action] of Object.entries(buttons)) byId(id).addEventListener("click", () => run(action));

byId("filter").addEventListener("change", (event) => setFilter(event.target.value));

byId("tab-screen").parentElement.addEventListener("keydown", (event) => {
  if (event.key !== "ArrowLeft" && event.key !== "ArrowRight") return;
  const other = store.view === "screen" ? "tab-all" : "tab-screen";
  byId(other).click();
  byId(other).focus();
});

byId("grid").addEventListener("click", (event) => {
  const tile = event.target.closest(".tile");
  if (!tile) return;
  store.cursor = Number(tile.dataset.place);
  redrawTiles();
  focusTile();
  const answer = event.target.closest("button")?.dataset.answer;
  if (answer) label([Number(tile.dataset.image)], answer === "yes");
});

async function start() {
  store.catalogue = await ask("api/catalogue");
  await loadRanking();
  useScreen(await ask("api/screen"));
  showSuggestions();
  showState(await ask("api/state"));
  if (store.state.yes + store.state.no) showSaved("saved", `Saved in ${store.state.saved}`);
  showScreen();
  focusTile();
  document.body.dataset.ready = "true";
}
run(start);
