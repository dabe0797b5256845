// Heatmaps of the direction: shown in place of an image while the pointer rests on it, or after a key.

import { tileHere } from "./grid.js";
import { byId, store } from "./store.js";

const REST = 300; // milliseconds before a heatmap is asked for

function show(tile) {
  const { state } = store;
  if (!state || !state.yes || !state.no) return; // a direction needs both
  if (tile.dataset.heatmap) return; // key and pointer may both ask for it
  const heatmap = new Image();
  tile.dataset.heatmap = "wanted";
  heatmap.onload = () => {
    if (!tile.dataset.heatmap) return;
    tile.dataset.heatmap = "shown";
    tile.querySelector("img").src = heatmap.src;
  };
  heatmap.onerror = () => hide(tile);
  // A document caches images by their address, whatever the headers say: after a label it has to be another one.
  heatmap.src = `heatmaps/${tile.dataset.image}.jpg?version=${state.version}`;
}

function hide(tile) {
  if (!tile.dataset.heatmap) return;
  delete tile.dataset.heatmap;
  delete tile.dataset.kept;
  tile.querySelector("img").src = `thumbnails/${tile.dataset.image}.jpg`;
}

export function toggleHeatmap() {
  const tile = tileHere();
  if (!tile) return;
  if (tile.dataset.kept) {
    hide(tile);
    return;
  }
  show(tile);
  if (tile.dataset.heatmap) tile.dataset.kept = "true"; // what the pointer showed stays when it leaves
}

let resting = 0;
byId("grid").addEventListener("pointerover", (event) => {
  const tile = event.target.closest(".tile");
  if (!tile || event.pointerType === "touch" || tile.contains(event.relatedTarget)) return;
  clearTimeout(resting);
  resting = setTimeout(() => show(tile), REST);
});
byId("grid").addEventListener("pointerout", (event) => {
  const tile = event.target.closest(".tile");
  if (!tile || tile.contains(event.relatedTarget)) return;
  clearTimeout(resting);
  if (!tile.dataset.kept) hide(tile);
});
