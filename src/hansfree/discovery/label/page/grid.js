// The grid of images: only the rows that are seen are drawn, so that thousands of images cost no more than a screen.

import { byId, store } from "./store.js";

const GAP = 8;
const ANSWERS = 31; // pixels of the two buttons below a picture
const FRAME = 6; // of a tile's border, both sides
const AHEAD = 3; // rows drawn beyond what is seen
const WIDTHS = { screen: 190, all: 136 }; // of a tile with its gap, at least; a screen of 12 is two rows of 6 in most windows
const REASONS = { likely: "likely", uncertain: "uncertain", unlikely: "likely without", spread: "" };

const grid = byId("grid");
const scroller = byId("scroller");
const rows = new Map(); // drawn rows by number
let columns = 1;
let rowHeight = 1;

export const steps = { ArrowLeft: () => -1, ArrowRight: () => 1, ArrowUp: () => -columns, ArrowDown: () => columns };

export const tileHere = () => grid.querySelector(`[data-place="${store.cursor}"]`);

export function layOut() {
  const hadFocus = grid.contains(document.activeElement);
  const width = grid.clientWidth || scroller.clientWidth;
  columns = Math.max(2, Math.floor((width + GAP) / WIDTHS[store.view]));
  const side = (width - GAP * (columns - 1)) / columns;
  rowHeight = Math.round(side - FRAME + ANSWERS + FRAME + GAP);
  const count = Math.ceil(store.shown.length / columns);
  grid.style.height = `${count * rowHeight}px`;
  grid.setAttribute("aria-rowcount", count);
  grid.setAttribute("aria-colcount", columns);
  byId("empty").hidden = count > 0;
  for (const [number, row] of rows) discard(number, row);
  draw();
  if (hadFocus) focusTile();
}

let lastTop = 0;
let loading = 0;
function draw() {
  const count = Math.ceil(store.shown.length / columns);
  const first = Math.max(0, Math.floor(scroller.scrollTop / rowHeight) - AHEAD);
  const last = Math.min(count - 1, Math.ceil((scroller.scrollTop + scroller.clientHeight) / rowHeight) + AHEAD);
  const kept = Math.floor(store.cursor / columns); // the focus lives in this one
  for (const [number, row] of rows) {
    if ((number < first || number > last) && number !== kept) discard(number, row);
  }
  for (let number = first; number <= last; number++) {
    if (!rows.has(number)) rows.set(number, drawRow(number));
  }
  const speed = Math.abs(scroller.scrollTop - lastTop);
  lastTop = scroller.scrollTop;
  clearTimeout(loading);
  if (speed > rowHeight / 4) loading = setTimeout(loadPictures, 120); // too fast to be seen
  else loadPictures();
}

function loadPictures() {
  for (const picture of grid.querySelectorAll("img:not([src])")) {
    picture.src = `thumbnails/${picture.closest(".tile").dataset.image}.jpg`;
  }
}

function discard(number, row) {
  for (const picture of row.querySelectorAll("img")) picture.removeAttribute("src"); // else it still waits to be loaded
  row.remove();
  rows.delete(number);
}

function drawRow(number) {
  const row = document.createElement("div");
  row.setAttribute("role", "row");
  row.setAttribute("aria-rowindex", number + 1);
  row.style.top = `${number * rowHeight}px`;
  row.style.gridTemplateColumns = `repeat(${columns}, minmax(0, 1fr))`;
  for (let place = number * columns; place < Math.min((number + 1) * columns, store.shown.length); place++) {
    row.append(drawTile(place));
  }
  grid.append(row);
  return row;
}

function drawTile(place) {
  const tile = byId("tile").content.firstElementChild.cloneNode(true);
  tile.setAttribute("aria-colindex", (place % columns) + 1);
  tile.dataset.image = store.shown[place];
  tile.dataset.place = place;
  dress(tile);
  return tile;
}

function dress(tile) {
  const { catalogue, cursor, artifactLabels, proposed, reasons, scores, view } = store;
  const image = Number(tile.dataset.image);
  const value = artifactLabels[image];
  const why = view === "screen" ? REASONS[reasons.get(image)] ?? "" : proposed.has(image) ? "proposed" : "";
  const word = { "-1": "not labelled", 0: "without the artifact", 1: "with the artifact" }[value];
  tile.dataset.label = value;
  tile.tabIndex = Number(tile.dataset.place) === cursor ? 0 : -1;
  tile.querySelector(".badge").textContent = value === 1 ? "✓" : value === 0 ? "✗" : why;
  const score = scores === null ? "" : `, score ${scores[image].toFixed(1)}`;
  const about = `${catalogue.names[image]}, ${catalogue.class_names[catalogue.labels[image]]}${score}`;
  tile.title = about;
  tile.setAttribute("aria-label", `${about}, ${word}${why ? `, ${why}` : ""}`);
  for (const button of tile.querySelectorAll("button")) {
    button.setAttribute("aria-pressed", String(value === (button.dataset.answer === "yes" ? 1 : 0)));
  }
}

export function redrawTiles() {
  for (const tile of grid.querySelectorAll(".tile")) dress(tile);
}

export function moveTo(place) {
  if (!store.shown.length) return;
  store.cursor = Math.max(0, Math.min(place, store.shown.length - 1));
  const top = Math.floor(store.cursor / columns) * rowHeight;
  if (top < scroller.scrollTop) scroller.scrollTop = top;
  if (top + rowHeight > scroller.scrollTop + scroller.clientHeight) scroller.scrollTop = top + rowHeight - scroller.clientHeight;
  draw();
  redrawTiles();
  focusTile();
}

const middle = (place) => (Math.floor(place / columns) + 0.5) * rowHeight;

export function isHereSeen() {
  const height = middle(store.cursor) - scroller.scrollTop;
  return height >= 0 && height <= scroller.clientHeight;
}

export function firstSeen() {
  return Math.ceil(scroller.scrollTop / rowHeight - 0.5) * columns;
}

export function focusTile() {
  tileHere()?.focus({ preventScroll: true });
}

let isDrawing = false;
scroller.addEventListener("scroll", () => {
  if (isDrawing) return;
  isDrawing = true;
  requestAnimationFrame(() => { isDrawing = false; draw(); });
}, { passive: true });

let lastWidth = 0;
new ResizeObserver(() => {
  if (scroller.clientWidth === lastWidth) return draw(); // a sentence above came or went
  lastWidth = scroller.clientWidth;
  return layOut();
}).observe(scroller);
