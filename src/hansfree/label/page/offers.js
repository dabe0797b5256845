// Suspected clusters: what each is, seen before all of its images are marked at once.

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
    button.title = suspect.sentence;
    button.addEventListener("click", () => preview(suspect));
    byId("suspects").append(button);
  }
}

const number = (suspect) => suspect.name.replace("suspect-", "");

let offered = null;
function preview(suspect) {
  offered = suspect;
  byId("offer-title").textContent = `Suspected cluster ${number(suspect)}: ${suspect.title}`;
  byId("offer-sentence").textContent = suspect.sentence;
  byId("offer-pictures").replaceChildren(...suspect.centre.map(picture));
  byId("offer-take").textContent = `Mark ${suspect.count === 1 ? "this image" : `all ${suspect.count} images`}`;
  byId("offer").returnValue = "";
  byId("offer").showModal();
}

byId("offer").addEventListener("close", () => {
  if (byId("offer").returnValue === "take") takeSuspect(offered.name).catch(showError);
});
