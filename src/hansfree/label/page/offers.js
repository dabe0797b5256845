// Suspected clusters: pointer or focus shows what each is, one click marks all of its images.

import { showError } from "./header.js";
import { byId, held } from "./held.js";
import { takeSuspect } from "./marking.js";

const picture = (image) => {
  const shown = document.createElement("img");
  shown.alt = held.catalogue.names[image];
  shown.src = `thumbnails/${image}.jpg`;
  return shown;
};

export function offerSuspects() {
  const found = held.catalogue.suspects;
  byId("suspects").hidden = !found.length;
  for (const suspect of found) {
    const button = document.createElement("button");
    button.dataset.suspect = suspect.name;
    button.append(...suspect.centre.slice(0, 1).map(picture), `${number(suspect)}: ${suspect.title} (${suspect.count})`);
    for (const come of ["mouseenter", "focus"]) button.addEventListener(come, () => preview(suspect, button));
    for (const go of ["mouseleave", "blur"]) button.addEventListener(go, hide);
    button.addEventListener("click", () => {
      hide();
      takeSuspect(suspect.name).catch(showError);
    });
    byId("suspects").append(button);
  }
}

const number = (suspect) => suspect.name.replace("suspect-", "");

function preview(suspect, button) {
  byId("offer-sentence").textContent = suspect.sentence;
  byId("offer-pictures").replaceChildren(...suspect.centre.map(picture));
  byId("offer").style.top = `${button.getBoundingClientRect().bottom + 4}px`;
  byId("offer").hidden = false;
}

function hide() {
  byId("offer").hidden = true;
}
