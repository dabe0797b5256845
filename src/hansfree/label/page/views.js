// Which images are shown: those to mark next, or all of them, the likeliest first, by what is known of them.

import { layOut } from "./grid.js";
import { ask, byId, held } from "./held.js";

const FILTERS = {
  all: () => true,
  proposed: (image) => held.proposed.has(image),
  yes: (image) => held.marks[image] === 1,
  no: (image) => held.marks[image] === 0,
  unmarked: (image) => held.marks[image] === -1,
};

// `isOvertaken` says whether marks were made in the meantime; the last of them asks again.
export async function loadRanking(isOvertaken = () => false) {
  const found = await ask("api/ranking");
  if (isOvertaken()) return;
  const { order, marks, scores } = found;
  Object.assign(held, { order, marks, scores, proposed: new Set(found.proposed) });
}

export function useScreen(choices) {
  held.screen = choices.map((choice) => choice.image);
  held.reasons = new Map(choices.map((choice) => [choice.image, choice.why]));
}

export function setView(name) {
  const moved = held.view !== name;
  held.view = name;
  for (const [id, word] of [["tab-screen", "screen"], ["tab-all", "all"]]) {
    byId(id).setAttribute("aria-selected", String(name === word));
    byId(id).tabIndex = name === word ? 0 : -1;
  }
  byId("filter-label").hidden = name !== "all";
  byId("rest").disabled = name !== "screen";
  held.shown = name === "screen" ? held.screen : held.order.filter(FILTERS[byId("filter").value]);
  if (moved) toStart();
  held.cursor = Math.min(held.cursor, Math.max(held.shown.length - 1, 0));
  layOut();
}

export function setFilter(name) {
  byId("filter").value = name;
  toStart();
  setView("all");
}

function toStart() {
  held.cursor = 0;
  byId("scroller").scrollTop = 0;
}
