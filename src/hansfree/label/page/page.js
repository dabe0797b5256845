// The labelling page. No library, no build step; every address is relative, so that it carries the token by itself.
"use strict";

const GAP = 8;
const ANSWERS = 31; // pixels of the two buttons below a picture
const FRAME = 6; // of a tile's border, both sides
const AHEAD = 3; // rows drawn beyond what is seen
const HOVER = 300; // milliseconds before a heatmap is asked for
const REASONS = { likely: "likely", uncertain: "uncertain", spread: "" };

const byId = (id) => document.getElementById(id);
const grid = byId("grid");
const scroller = byId("scroller");

let catalogue = { names: [], labels: [], class_names: [], suspects: {} };
let marks = []; // -1 unknown, 0 without, 1 with, by image
let scores = null;
let proposed = new Set();
let state = null;
let view = "screen"; // or "all"
let screenImages = [];
let reasons = new Map();
let shown = []; // the images of the view, in order
let cursor = 0; // a place in `shown`
let columns = 1;
let rowHeight = 1;
let rows = new Map(); // drawn rows by number
let pending = 0; // steps that are not saved yet
let sending = Promise.resolve(); // marks go one after the other, in the order in which they were made

async function ask(path, body) {
  const options = body === undefined ? {} : { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) };
  const response = await fetch(path, options);
  if (!response.ok) {
    const told = await response.json().catch(() => ({}));
    throw new Error(typeof told.detail === "string" ? told.detail : `The page's program answered ${response.status}.`);
  }
  return response.json();
}

// ---- what is above the images

function showState(now) {
  state = now;
  byId("count-yes").textContent = now.yes;
  byId("count-no").textContent = now.no;
  byId("count-images").textContent = now.images;
  byId("count-proposed").textContent = now.proposed;
  byId("advice").textContent = now.advice;
  byId("undo").disabled = !now.can_undo;
  const found = now.judgement;
  byId("auc").textContent = found && found.auc !== null ? found.auc.toFixed(2) : "–";
  const doctor = byId("doctor");
  doctor.textContent = found ? found.verdict : "";
  doctor.dataset.level = found ? found.level : "unknown";
  if (now.is_judging) watchJudgement();
}

let watching = 0;
function watchJudgement() {
  clearTimeout(watching);
  watching = setTimeout(() => ask("api/state").then(showState, showError), 1000);
}

function showSaved(word, text) {
  byId("saved").dataset.state = word;
  byId("saved").textContent = text;
}

function showError(error) {
  const place = byId("error");
  place.hidden = !error;
  place.textContent = error ? error.message : "";
}

function say(text) {
  byId("said").textContent = text;
}

// ---- marks

function send(path, body) {
  showSaved("saving", "Saving …");
  pending += 1;
  const answer = sending.then(() => ask(path, body));
  sending = answer.then(
    (found) => {
      pending -= 1;
      showError(null);
      if (!pending) showSaved("saved", `Saved in ${(found.state ?? found).saved}`);
      if (!pending) loadRanking().then(redrawTiles, showError); // what is proposed changes with every mark
    },
    async (error) => {
      pending -= 1;
      showError(error);
      showSaved("failed", "Not saved.");
      await loadRanking().catch(showError); // show what the program really holds
      redrawTiles();
    },
  );
  return answer;
}

function mark(images, hasArtifact) {
  if (!images.length) return Promise.resolve();
  for (const image of images) marks[image] = hasArtifact ? 1 : 0;
  redrawTiles();
  const words = hasArtifact ? "with the artifact" : "without the artifact";
  say(images.length === 1 ? `${catalogue.names[images[0]]} ${words}` : `${images.length} images ${words}`);
  return send("api/marks", { images, has_artifact: hasArtifact }).then(showState, () => {});
}

function markHere(hasArtifact) {
  if (!shown.length) return;
  mark([shown[cursor]], hasArtifact);
  moveTo(Math.min(cursor + 1, shown.length - 1));
}

function undo() {
  return send("api/undo", {}).then(async (undone) => {
    showState(undone.state);
    await loadRanking();
    redrawTiles();
    const place = shown.indexOf(undone.images[0]);
    if (place >= 0) moveTo(place);
    say(undone.images.length ? "Undone." : "There is nothing to undo.");
  }, () => {});
}

async function nextScreen() {
  await sending;
  useScreen(await ask("api/screen/next", {}));
  setView("screen");
  await loadRanking();
  moveTo(0);
}

async function restWithout() {
  if (view !== "screen") return;
  mark(screenImages.filter((image) => marks[image] === -1), false);
  await nextScreen();
}

async function takeSuspect(suspect) {
  await send("api/suspects", { suspect }).then(showState, () => {});
  await loadRanking();
  setView(view);
}

async function finish() {
  await sending;
  const done = await ask("api/finish", {});
  showError(null);
  byId("finished-sentence").textContent = done.sentence;
  byId("finished").showModal();
}

// ---- which images

function useScreen(choices) {
  screenImages = choices.map((choice) => choice.image);
  reasons = new Map(choices.map((choice) => [choice.image, choice.why]));
}

let order = [];
async function loadRanking() {
  const found = await ask("api/ranking");
  if (pending) return; // it was overtaken by marks of the meantime; the last of them asks again
  ({ order, marks, scores } = found);
  proposed = new Set(found.proposed);
}

function listed() {
  if (view === "screen") return screenImages;
  const tests = {
    all: () => true,
    proposed: (image) => proposed.has(image),
    yes: (image) => marks[image] === 1,
    no: (image) => marks[image] === 0,
    unmarked: (image) => marks[image] === -1,
  };
  return order.filter(tests[byId("filter").value]);
}

function setView(name) {
  const moved = view !== name;
  view = name;
  for (const [id, word] of [["tab-screen", "screen"], ["tab-all", "all"]]) {
    byId(id).setAttribute("aria-selected", String(view === word));
    byId(id).tabIndex = view === word ? 0 : -1;
  }
  byId("filter-label").hidden = view !== "all";
  byId("rest").disabled = view !== "screen";
  shown = listed();
  cursor = Math.min(moved ? 0 : cursor, Math.max(shown.length - 1, 0));
  byId("empty").hidden = shown.length > 0;
  if (moved) scroller.scrollTop = 0;
  layOut();
}

async function showAll() {
  await sending;
  await loadRanking();
  setView("all");
  focusTile();
}

// ---- the grid: only the rows that are seen are drawn

function layOut() {
  const hadFocus = grid.contains(document.activeElement);
  const width = grid.clientWidth || scroller.clientWidth;
  columns = Math.max(2, Math.floor((width + GAP) / (view === "screen" ? 200 : 136)));
  const side = (width - GAP * (columns - 1)) / columns;
  rowHeight = Math.round(side - FRAME + ANSWERS + FRAME + GAP);
  const count = Math.ceil(shown.length / columns);
  grid.style.height = `${count * rowHeight}px`;
  grid.setAttribute("aria-rowcount", count);
  grid.setAttribute("aria-colcount", columns);
  for (const [number, row] of rows) discard(number, row);
  draw();
  if (hadFocus) focusTile();
}

function draw() {
  const count = Math.ceil(shown.length / columns);
  const first = Math.max(0, Math.floor(scroller.scrollTop / rowHeight) - AHEAD);
  const last = Math.min(count - 1, Math.ceil((scroller.scrollTop + scroller.clientHeight) / rowHeight) + AHEAD);
  const kept = Math.floor(cursor / columns); // the focus lives in this one
  for (const [number, row] of rows) {
    if ((number < first || number > last) && number !== kept) discard(number, row);
  }
  for (let number = first; number <= last; number++) {
    if (!rows.has(number)) rows.set(number, drawRow(number));
  }
  const speed = Math.abs(scroller.scrollTop - lastTop);
  lastTop = scroller.scrollTop;
  clearTimeout(loading);
  if (speed > rowHeight) loading = setTimeout(loadPictures, 120); // nobody sees what flies past
  else loadPictures();
}

let lastTop = 0;
let loading = 0;
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
  for (let place = number * columns; place < Math.min((number + 1) * columns, shown.length); place++) {
    row.append(drawTile(place));
  }
  grid.append(row);
  return row;
}

function drawTile(place) {
  const image = shown[place];
  const tile = document.createElement("div");
  tile.className = "tile";
  tile.setAttribute("role", "gridcell");
  tile.setAttribute("aria-colindex", (place % columns) + 1);
  tile.dataset.image = image;
  tile.dataset.place = place;
  const picture = document.createElement("img");
  picture.alt = "";
  picture.decoding = "async";
  picture.draggable = false;
  const badge = document.createElement("span");
  badge.className = "badge";
  const answers = document.createElement("div");
  answers.className = "answers";
  for (const [word, text] of [["yes", "✓ artifact"], ["no", "✗ none"]]) {
    const button = document.createElement("button");
    button.tabIndex = -1; // keys answer for the tile
    button.dataset.answer = word;
    button.textContent = text;
    answers.append(button);
  }
  tile.append(picture, badge, answers);
  dress(tile);
  return tile;
}

function dress(tile) {
  const image = Number(tile.dataset.image);
  const value = marks[image];
  const why = view === "screen" ? REASONS[reasons.get(image)] ?? "" : proposed.has(image) ? "proposed" : "";
  const word = { "-1": "not marked", 0: "without the artifact", 1: "with the artifact" }[value];
  tile.dataset.mark = value;
  tile.dataset.proposed = proposed.has(image);
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

function redrawTiles() {
  for (const tile of grid.querySelectorAll(".tile")) dress(tile);
}

function moveTo(place) {
  if (!shown.length) return;
  cursor = Math.max(0, Math.min(place, shown.length - 1));
  const top = Math.floor(cursor / columns) * rowHeight;
  if (top < scroller.scrollTop) scroller.scrollTop = top;
  if (top + rowHeight > scroller.scrollTop + scroller.clientHeight) scroller.scrollTop = top + rowHeight - scroller.clientHeight;
  draw();
  redrawTiles();
  focusTile();
}

function focusTile() {
  grid.querySelector(`[data-place="${cursor}"]`)?.focus({ preventScroll: true });
}

// ---- heatmaps

let hovering = 0;
function showHeatmap(tile) {
  if (!state || !state.yes || !state.no) return;
  const picture = tile.querySelector("img");
  const heatmap = new Image();
  tile.dataset.heatmap = "wanted";
  heatmap.onload = () => {
    if (!tile.dataset.heatmap) return;
    tile.dataset.heatmap = "shown";
    picture.src = heatmap.src;
  };
  heatmap.src = `heatmaps/${tile.dataset.image}.jpg?marks=${state.yes + state.no}`;
}

function hideHeatmap(tile) {
  if (!tile.dataset.heatmap) return;
  delete tile.dataset.heatmap;
  tile.querySelector("img").src = `thumbnails/${tile.dataset.image}.jpg`;
}

grid.addEventListener("pointerover", (event) => {
  const tile = event.target.closest(".tile");
  if (!tile || event.pointerType === "touch" || tile.contains(event.relatedTarget)) return;
  clearTimeout(hovering);
  hovering = setTimeout(() => showHeatmap(tile), HOVER);
});
grid.addEventListener("pointerout", (event) => {
  const tile = event.target.closest(".tile");
  if (!tile || tile.contains(event.relatedTarget)) return;
  clearTimeout(hovering);
  hideHeatmap(tile);
});

// ---- keys, buttons, scrolling

const steps = { ArrowLeft: () => -1, ArrowRight: () => 1, ArrowUp: () => -columns, ArrowDown: () => columns };
const keys = {
  " ": () => markHere(true),
  n: () => markHere(false),
  u: undo,
  r: restWithout,
  Enter: nextScreen,
  h: () => {
    const tile = grid.querySelector(`[data-place="${cursor}"]`);
    if (tile) (tile.dataset.heatmap ? hideHeatmap : showHeatmap)(tile);
  },
  1: () => { setView("screen"); focusTile(); },
  2: showAll,
  "?": () => byId("keys").showModal(),
  Home: () => moveTo(0),
  End: () => moveTo(shown.length - 1),
};

const run = (action) => Promise.resolve().then(action).catch(showError);

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  const isControl = event.target.closest("button, select");
  if (isControl && (event.key === " " || event.key === "Enter" || event.key.startsWith("Arrow"))) return;
  if (event.target.closest("select")) return;
  const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
  const action = key in steps ? () => moveTo(cursor + steps[key]()) : keys[key];
  if (!action) return;
  event.preventDefault();
  if (event.repeat && !(key in steps)) return; // a key that is held down marks once
  run(action);
});

grid.addEventListener("click", (event) => {
  const tile = event.target.closest(".tile");
  if (!tile) return;
  cursor = Number(tile.dataset.place);
  redrawTiles();
  focusTile();
  const answer = event.target.closest("button")?.dataset.answer;
  if (answer) mark([Number(tile.dataset.image)], answer === "yes");
});

for (const [id, action] of [["undo", undo], ["rest", restWithout], ["next", nextScreen], ["finish", finish], ["tab-all", showAll], ["tab-screen", keys[1]], ["help", keys["?"]]]) {
  byId(id).addEventListener("click", () => run(action));
}
byId("filter").addEventListener("change", () => { cursor = 0; scroller.scrollTop = 0; setView("all"); });
byId("tab-screen").parentElement.addEventListener("keydown", (event) => {
  if (event.key !== "ArrowLeft" && event.key !== "ArrowRight") return;
  const other = view === "screen" ? "tab-all" : "tab-screen";
  byId(other).click();
  byId(other).focus();
});

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

async function start() {
  catalogue = await ask("api/catalogue");
  await loadRanking();
  useScreen(await ask("api/screen"));
  for (const [name, count] of Object.entries(catalogue.suspects)) {
    const button = document.createElement("button");
    button.dataset.suspect = name;
    button.textContent = `Take ${name} (${count})`;
    button.addEventListener("click", () => run(() => takeSuspect(name)));
    byId("suspects").append(button);
  }
  showState(await ask("api/state"));
  if (state.yes + state.no) showSaved("saved", `Saved in ${state.saved}`);
  setView("screen");
  focusTile();
  document.body.dataset.ready = "true";
}
run(start);
