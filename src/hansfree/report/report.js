// Theme, folding, navigation, sorting, toggles and points of the report; without it the page can be read and unfolded all the same.
document.documentElement.classList.add("js");

const tip = document.getElementById("tip");

function element(tag, text, parent) {
  const made = document.createElement(tag);
  if (text) made.textContent = text;
  parent.append(made);
  return made;
}

let asked = null; // the point that the tip belongs to

// A copy above all others: to move the point itself would take the focus from it.
let front = null;

function bringToFront(point) {
  front?.remove();
  front = point.cloneNode(true);
  for (const name of ["role", "tabindex", "aria-label"]) front.removeAttribute(name);
  front.setAttribute("class", "front");
  front.setAttribute("aria-hidden", "true");
  point.ownerSVGElement.append(front);
}

function showTip(point, fill) {
  asked = point;
  bringToFront(point);
  tip.replaceChildren();
  fill(tip);
  tip.hidden = false;
  placeTip();
}

function placeTip() {
  if (!asked) return;
  const at = asked.getBoundingClientRect();
  const left = Math.min(at.right + 12, innerWidth - tip.offsetWidth - 8);
  const below = at.bottom + 12;
  const fits = below + tip.offsetHeight < innerHeight;
  tip.style.left = `${Math.max(8, left)}px`;
  tip.style.top = `${fits ? below : at.top - tip.offsetHeight - 12}px`;
}

function hideTip() {
  asked = null;
  front?.remove();
  tip.hidden = true;
}

// One stop of the tab key per plot; the arrow keys go from point to point.
function makeAskable(plot, fillFor) {
  const points = [...plot.querySelectorAll(".point")];
  const steps = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };
  function go(place) {
    for (const point of points) point.setAttribute("tabindex", "-1");
    points[place].setAttribute("tabindex", "0");
    points[place].focus();
  }
  points.forEach((point, place) => {
    const show = () => showTip(point, (box) => fillFor(point, place, box));
    point.addEventListener("pointerenter", show);
    point.addEventListener("focus", show);
    point.addEventListener("pointerleave", hideTip);
    point.addEventListener("blur", hideTip);
    point.addEventListener("keydown", (event) => {
      const ends = { Home: 0, End: points.length - 1 };
      if (event.key === "Escape") hideTip();
      else if (event.key in ends) go(ends[event.key]);
      else if (event.key in steps) go((place + steps[event.key] + points.length) % points.length);
      else return;
      event.preventDefault();
    });
  });
  return points;
}

function onChoice(name, apply) {
  const toggle = document.getElementById(`${name}-toggle`);
  if (!toggle) return;
  toggle.addEventListener("change", (event) => apply(event.target.value));
  // A browser may keep the choice over a reload.
  apply(toggle.querySelector("input:checked").value);
}

const tradeoff = document.getElementById("tradeoff");
if (tradeoff) makeAskable(tradeoff, (point, _place, box) => element("p", point.getAttribute("aria-label"), box));

const effectData = document.getElementById("effect-data");
if (effectData) {
  const data = JSON.parse(effectData.textContent);
  let method = null;
  const sentence = (place) => {
    const [before, after, answer] = method.words[place];
    return `${method.title}: “${data.name}” ${before} ${data.ends[0]}, ${after} ${data.ends[1]}; ${answer}`;
  };
  const points = makeAskable(document.getElementById("effect"), (_point, place, box) => {
    const image = data.images[place];
    const row = element("div", "", box);
    const kinds = { clean: "without", biased: "with the artifact" };
    for (const kind of Object.keys(kinds).filter((key) => key in image)) {
      const figure = element("figure", "", row);
      element("img", "", figure).src = image[kind];
      element("figcaption", kinds[kind], figure);
    }
    element("p", "", box).append(element("strong", image.label, box));
    element("p", sentence(place), box);
  });
  onChoice("effect", (chosen) => {
    method = data.methods[chosen];
    points.forEach((point, place) => {
      const [across, up] = method.places[place].map((end, axis) => end - data.methods[data.first].places[place][axis]);
      point.style.transform = `translate(${across}px,${up}px)`;
      point.setAttribute("aria-label", `Test image ${place + 1}, ${data.images[place].label}. ${sentence(place)}`);
    });
  });
}

onChoice("heatmaps", (chosen) => {
  for (const cell of document.querySelectorAll("#heatmaps .cell")) {
    cell.classList.toggle("aside", !["input", "original", chosen].includes(cell.dataset.method));
  }
});

addEventListener("scroll", placeTip, { passive: true }); // the focus scrolls a point into sight, and its tip goes along

// Folding: all at once, for paper, and where the address or a link points into something folded.
const folds = [...document.querySelectorAll("details")];
const fold = document.getElementById("fold");
function setFolds(open) {
  for (const each of folds) each.open = open;
}
function showFold() {
  const areOpen = folds.every((each) => each.open);
  fold.textContent = areOpen ? "Fold all" : "Unfold all";
  fold.setAttribute("aria-pressed", areOpen);
}
fold.addEventListener("click", () => setFolds(!folds.every((each) => each.open)));
for (const each of folds) each.addEventListener("toggle", showFold);
let folded = [];
addEventListener("beforeprint", () => {
  folded = folds.filter((each) => !each.open);
  setFolds(true);
});
addEventListener("afterprint", () => {
  for (const each of folded) each.open = false;
});

const theme = document.getElementById("theme");
const root = document.documentElement;
function setTheme(name) {
  root.dataset.theme = name;
  theme.setAttribute("aria-pressed", name === "dark");
  theme.textContent = name === "dark" ? "Light" : "Dark";
}
function stored(name) {
  try {
    if (name) localStorage.setItem("hansfree-theme", name);
    return localStorage.getItem("hansfree-theme");
  } catch {
    return null; // a page from disk may have no storage
  }
}
setTheme(stored() ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light"));
theme.addEventListener("click", () => {
  const name = root.dataset.theme === "dark" ? "light" : "dark";
  stored(name);
  setTheme(name);
});

// The link of the section in sight is marked.
const links = new Map([...document.querySelectorAll(".bar nav a")].map((link) => [link.hash.slice(1), link]));
function markSection() {
  let current = null;
  for (const [id, link] of links) {
    if (document.getElementById(id).getBoundingClientRect().top < 120) current = link;
    link.removeAttribute("aria-current");
  }
  // At the end of the page several sections are in sight: the one that was asked for, or else the last.
  if (innerHeight + scrollY >= root.scrollHeight - 2) current = links.get(location.hash.slice(1)) ?? [...links.values()].at(-1);
  current?.setAttribute("aria-current", "true");
}
addEventListener("scroll", markSection, { passive: true });
addEventListener("hashchange", markSection);
markSection();

// Sorting: a column's head is a button; what has no number stays last.
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells].slice(0, 1).concat([...table.tHead.rows[1].cells]);
  const value = (row, place) => (place ? Number.parseFloat(row.cells[place].dataset.value) : row.cells[0].textContent.trim());
  heads.forEach((head, place) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const isUp = head.getAttribute("aria-sort") ? head.getAttribute("aria-sort") === "descending" : head.dataset.ideal !== "high";
      for (const other of heads) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", isUp ? "ascending" : "descending");
      const compare = (one, other) => {
        const [a, b] = [value(one, place), value(other, place)];
        if (place && (Number.isNaN(a) || Number.isNaN(b))) return Number.isNaN(a) - Number.isNaN(b);
        return (isUp ? 1 : -1) * (place ? a - b : a.localeCompare(b));
      };
      table.tBodies[0].append(...[...table.tBodies[0].rows].sort(compare));
    });
  });
}
