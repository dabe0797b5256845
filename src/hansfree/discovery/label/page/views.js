// Views: the images to label next, or all images, the most likely first, with a filter.

import { layOut } from "./grid.js";
import { ask, byId, store } from "./store.js";

const FILTERS = {
  all: () => true,
  proposed: (image) => store.proposed.has(image),
  yes: (image) => store.artifactLabels[image] === 1,
  no: (image) => store.artifactLabels[image] === 0,
  unlabelled: (image) => store.artifactLabels[image] === -1,
};

// `isOvertaken` returns whether newer labels were given; the last of them loads again.
export async function loadRanking(isOvertaken = () => false) {
  const found = await ask("api/ranking");
  if (isOvertaken()) return;
  const { order, labels, scores } = found;
  Object.assign(store, { order, artifactLabels: labels, scores, proposed: new Set(found.proposed) });
}

export function useScreen(choices) {
  store.screen = choices.map((choice) => choice.image);
  store.reasons = new Map(choices.map((choice) => [choice.image, choice.why]));
}

export function setView(name) {
  const moved = store.view !== name;
  store.view = name;
  for (const [id, word] of [["tab-screen", "screen"], ["tab-all", "all"]]) {
    byId(id).setAttribute("aria-selected", String(name === word));
    byId(id).tabIndex = name === word ? 0 : -1;
  }
  byId("filter-label").hidden = name !== "all";
  byId("rest").disabled = name !== "screen";
  store.shown = name === "screen" ? store.screen : store.order.filter(FILTERS[byId("filter").value]);
  if (moved) toStart();
  store.cursor = Math.min(store.cursor, Math.max(store.shown.length - 1, 0));
  layOut();
}

export function setFilter(name) {
  byId("filter").value = name;
  toStart();
  setView("all");
}

function toStart() {
  store.cursor = 0;
  byId("scroller").scrollTop = 0;
}
