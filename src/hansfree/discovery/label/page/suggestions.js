// Suggested clusters: pointer or focus shows a preview, one click labels all images.

import { showError } from "./header.js";
import { byId, store } from "./store.js";
import { acceptSuggestion } from "./labelling.js";

const picture = (image) => {
  const shown = document.createElement("img");
  shown.alt = store.catalogue.names[image];
  shown.src = `thumbnails/${image}.jpg`;
  return shown;
};

export function showSuggestions() {
  const found = store.catalogue.suspects;
  byId("suspects").hidden = !found.length;
  for (const suspect of found) {
    const button = document.createElement("button");
    button.dataset.suspect = suspect.name;
    button.append(...suspect.centre.slice(0, 1).map(picture), `${number(suspect)}: ${suspect.title} (${suspect.images.length})`);
    for (const come of ["mouseenter", "focus"]) button.addEventListener(come, () => preview(suspect, button));
    for (const go of ["mouseleave", "blur"]) button.addEventListener(go, hide);
    button.addEventListener("click", () => {
      hide();
      acceptSuggestion(suspect.name).catch(showError);
    });
    byId("suspects").append(button);
  }
}

const number = (suspect) => suspect.name.replace("suspect-", "");

function preview(suspect, button) {
  byId("suggestion-sentence").textContent = suspect.sentence;
  byId("suggestion-pictures").replaceChildren(...suspect.centre.map(picture));
  byId("suggestion").style.top = `${button.getBoundingClientRect().bottom + 4}px`;
  byId("suggestion").hidden = false;
}

function hide() {
  byId("suggestion").hidden = true;
}
