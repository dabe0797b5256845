// Toggles and points of the report. Without this script, and in print, the page shows everything at once.
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
      const [across, up] = method.places[place];
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

// The rule is long: folded on the screen, open on paper.
const rule = document.querySelector(".rule");
if (rule) {
  let wasOpen = (rule.open = false);
  addEventListener("beforeprint", () => {
    wasOpen = rule.open;
    rule.open = true;
  });
  addEventListener("afterprint", () => (rule.open = wasOpen));
}
