// What stands above the images: counts, AUC, advice, the doctor's verdict, and whether all is saved.

import { ask, byId, held } from "./held.js";

export function showState(now) {
  held.state = now;
  byId("count-yes").textContent = now.yes;
  byId("count-no").textContent = now.no;
  byId("count-images").textContent = now.images;
  byId("count-proposed").textContent = now.proposed;
  byId("advice").textContent = now.advice;
  byId("undo").disabled = !now.can_undo;
  if (now.is_judging) {
    showJudging();
    watchJudgement();
    return;
  }
  const found = now.judgement;
  byId("auc").textContent = found && found.auc !== null ? found.auc.toFixed(2) : "–";
  const doctor = byId("doctor");
  doctor.textContent = found ? found.verdict : "";
  doctor.dataset.level = found ? found.level : "unknown";
}

// What the doctor said last is of other marks: it stays to be read, and says so.
export function showJudging() {
  const last = held.state?.judgement;
  byId("auc").textContent = "…";
  byId("doctor").dataset.level = "judging";
  byId("doctor").textContent = last ? `judging … Before: ${last.verdict}` : "judging …";
}

let watching = 0;
function watchJudgement() {
  clearTimeout(watching);
  watching = setTimeout(() => ask("api/state").then(showState, showError), 1000);
}

export function showSaved(word, text) {
  byId("saved").dataset.state = word;
  byId("saved").textContent = text;
}

export function showError(error) {
  const place = byId("error");
  place.hidden = !error;
  place.textContent = error ? error.message : "";
}

// For those who listen instead of looking.
export function say(text) {
  byId("said").textContent = text;
}
