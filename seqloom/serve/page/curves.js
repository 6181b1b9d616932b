// The runs of a folder, also of those that are being trained, and its comparisons.

import {draw, find, make, number, select, table} from "./elements.js";
import {ask, explained, saved} from "./server.js";

const LOOK_AGAIN = 5000; // milliseconds
const COLOURS = 12; // of the palette

const LOGGED = {loss: "loss in training", valid: "validation loss", rate: "learning rate", joules: "energy, joules"};

/** What is drawn of a run: [step, tokens, value]. */
const curveOf = (run, what) => (what === "loss" ? run.curve : run.more[what] ?? []).filter((point) => point.every(Number.isFinite));
const shortNumber = (value) => Math.abs(value) >= 0.01 || value === 0 ? number(value) : value.toExponential(1).replace("-", "−");

/** Where a number stands on no other one, as near to its curve as there is room from the top to the bottom. */
function freePlace(x, y, size, bottom, placed) {
  const isFree = (at) => at >= size && at <= bottom && !placed.some((each) => Math.abs(each.x - x) < 2 * size && Math.abs(each.y - at) < size);
  const steps = Array.from({length: 4 * placed.length}, (_, i) => (i + 1) * size / 2);
  const found = {x, y: [y, ...steps.flatMap((step) => [y + step, y - step])].find(isFree) ?? y};
  placed.push(found);
  return found;
}

/** Curves; the number at the end of each is that of its row in the table. */
function curvesOf(runs, what) {
  const size = matchMedia("(max-width: 30rem)").matches ? 24 : 13; // of letters, as in the style sheet
  const [width, height, left, right, bottom] = [720, 320, 70, 2 * size, 30];
  const curves = runs.map((run) => curveOf(run, what));
  const points = curves.flat();
  if (points.length === 0) return null;
  const ends = (values) => [values.reduce((a, b) => Math.min(a, b)), values.reduce((a, b) => Math.max(a, b))];
  const [[low, high], [, most]] = [ends(points.map((each) => each[2])), ends(points.map((each) => each[1]))];
  const x = (tokens) => left + (width - left - right) * tokens / (most || 1);
  const y = (value) => size + (height - bottom - 2 * size) * (1 - (value - low) / (high - low || 1));
  const picture = draw("svg", {viewBox: `0 0 ${width} ${height}`, class: "curves", role: "img", "aria-label": `${LOGGED[what]} by tokens; the table has the numbers`});
  picture.append(draw("path", {class: "axis", d: `M${left} 8V${height - bottom}H${width - right}`}));
  for (const value of [low, high]) picture.append(draw("text", {x: left - 6, y: y(value) + 4, "text-anchor": "end"}, shortNumber(value)));
  picture.append(draw("text", {x: left, y: height - 8}, "0"), draw("text", {x: width - right, y: height - 8, "text-anchor": "end"}, `${most.toLocaleString("en")} tokens`));
  const placed = [];
  curves.forEach((own, i) => {
    if (own.length === 0) return;
    const line = draw("path", {d: "M" + own.map(([, tokens, value]) => `${x(tokens).toFixed(1)} ${y(value).toFixed(1)}`).join("L")});
    line.style.stroke = `var(--c${i % COLOURS})`;
    const [, tokens, value] = own.at(-1);
    const place = freePlace(x(tokens) + 5, y(value) + 4, size, height - bottom, placed);
    picture.append(line, draw("text", place, String(i + 1)));
  });
  return picture;
}

function tableOf({folder, runs}) {
  const last = (run, what) => curveOf(run, what).at(-1)?.[2];
  const whole = (value) => value?.toLocaleString("en", {maximumFractionDigits: 0}) ?? "–";
  const rows = runs.map((run, i) => {
    const [step, tokens] = run.curve.at(-1) ?? [];
    const [loss, valid, rate] = ["loss", "valid", "rate"].map((what) => last(run, what));
    return [
      `${i + 1}. ${run.name}`, run.problem ?? run.state, whole(step), whole(tokens), loss === undefined ? "–" : number(loss, 3),
      valid === undefined ? "–" : number(valid, 3), rate === undefined ? "–" : shortNumber(rate), whole(last(run, "tokens_per_second")),
      whole(run.memory_mb ?? undefined), whole(last(run, "joules")),
    ];
  });
  const heads = ["run", "state", "step", "tokens", "loss in training", "validation loss", "rate", "tokens/s", "memory, MB", "energy, J"];
  return table(`Runs in the folder ${folder}`, heads, rows, "runs");
}

/** A comparison: every figure of every row with its interval, what to know before one believes a difference, and samples. */
function comparisonOf({folder, name, rows, figures, caveats, samples}) {
  const names = Object.keys(figures);
  const cell = (found) => found === undefined || found.value === null ? "–"
    : number(found.value, 3) + (found.low === null || found.high === null ? "" : ` [${number(found.low, 3)}, ${number(found.high, 3)}]`);
  const shown = table(`${name} (${folder})`, ["row", ...names], rows.map((row) => [row, ...names.map((each) => cell(figures[each][row]))]));
  const list = (title, items) => items.length === 0 ? null
    : make("details", {}, make("summary", {}, title), make("ul", {}, ...items.map((each) => make("li", {}, each))));
  return make("section", {}, shown, list("Before you believe a difference", caveats),
    list("Samples", Object.entries(samples).map(([row, text]) => `${row}: ${text}`)));
}

export function runsPanel(tab) {
  const place = make("div", {class: "answer"});
  const [picture, rows, compared] = [0, 1, 2].map(() => make("div"));
  let found = null, written = "";
  const show = () => {
    if (found === null) return;
    const drawn = curvesOf(found.runs, choice.input.value);
    picture.replaceChildren(...(drawn === null ? [make("p", {}, "No run has this in its log yet.")] : [drawn]));
  };
  const choice = select(`${tab.id}-what`, "Drawn by tokens", Object.entries(LOGGED), "loss", show);
  const look = async () => {
    try {
      found = await ask("/api/runs");
    } catch (error) {
      place.replaceChildren(make("p", {class: "error", role: "alert"}, explained(error)));
      return;
    }
    show();
    rows.replaceChildren(tableOf(found));
    if (JSON.stringify(found.comparisons) !== written) { // what is open stays open while nothing is new
      written = JSON.stringify(found.comparisons);
      compared.replaceChildren(...found.comparisons.map(comparisonOf));
    }
    if (!place.contains(rows)) place.replaceChildren(picture, rows, compared);
  };
  const again = async () => {
    if (!find(`panel-${tab.id}`).hidden && !document.hidden) await look();
    setTimeout(again, LOOK_AGAIN);
  };
  look().then(() => saved === null && setTimeout(again, LOOK_AGAIN));
  return make("div", {}, choice.field, place);
}
