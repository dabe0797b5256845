// The header: counts, AUC, advice, diagnostics, and whether everything is saved.

import { ask, byId, store } from "./store.js";

export function showState(now) {
  store.state = now;
  byId("count-yes").textContent = now.yes;
  byId("count-no").textContent = now.no;
  byId("count-images").textContent = now.images;
  byId("count-proposed").textContent = now.proposed;
  byId("advice").textContent = now.advice;
  byId("undo").disabled = !now.can_undo;
  if (now.is_diagnosing) {
    showPending();
    watchDiagnostics();
    return;
  }
  const found = now.diagnostics;
  byId("auc").textContent = found && found.auc !== null ? found.auc.toFixed(2) : "–";
  const diagnosis = byId("diagnostics");
  diagnosis.textContent = found ? found.verdict : "";
  diagnosis.dataset.level = found ? found.level : "unknown";
}

// The latest diagnostics are of older labels: show them as such.
export function showPending() {
  const last = store.state?.diagnostics;
  byId("auc").textContent = "…";
  byId("diagnostics").dataset.level = "pending";
  byId("diagnostics").textContent = last ? `Updating … Before: ${last.verdict}` : "Updating …";
}

let watching = 0;
function watchDiagnostics() {
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

// For screen readers.
export function say(text) {
  byId("said").textContent = text;
}
