// The runs of a folder, also of those that are being trained.

import {draw, find, make, number, table} from "./elements.js";
import {ask, explained, saved} from "./server.js";

const LOOK_AGAIN = 5000; // milliseconds
const COLOURS = 12; // of the palette

/** Learning curves; the number at the end of each is that of its row in the table. */
function curvesOf(runs) {
  const [width, height, left, bottom] = [720, 320, 70, 30];
  const points = runs.flatMap((run) => run.curve).filter((point) => point.every(Number.isFinite));
  if (points.length === 0) return null;
  const ends = (values) => [Math.min(...values), Math.max(...values)];
  const [[low, high], most] = [ends(points.map((each) => each[2])), Math.max(...points.map((each) => each[1]))];
  const x = (tokens) => left + (width - left - 30) * tokens / most;
  const y = (loss) => 12 + (height - bottom - 24) * (1 - (loss - low) / (high - low || 1));
  const picture = draw("svg", {viewBox: `0 0 ${width} ${height}`, class: "curves", role: "img", "aria-label": "Loss by tokens; the table has the numbers"});
  picture.append(draw("path", {class: "axis", d: `M${left} 8V${height - bottom}H${width - 24}`}));
  for (const loss of [low, high]) picture.append(draw("text", {x: left - 6, y: y(loss) + 4, "text-anchor": "end"}, number(loss)));
  picture.append(draw("text", {x: left, y: height - 8}, "0"), draw("text", {x: width - 24, y: height - 8, "text-anchor": "end"}, `${most.toLocaleString("en")} tokens`));
  runs.forEach(({curve}, i) => {
    const own = curve.filter((point) => point.every(Number.isFinite));
    if (own.length === 0) return;
    const line = draw("path", {d: "M" + own.map(([, tokens, loss]) => `${x(tokens).toFixed(1)} ${y(loss).toFixed(1)}`).join("L")});
    line.style.stroke = `var(--c${i % COLOURS})`;
    const [, tokens, loss] = own.at(-1);
    picture.append(line, draw("text", {x: x(tokens) + 5, y: y(loss) + 4}, String(i + 1)));
  });
  return picture;
}

export function runsPanel(tab) {
  const place = make("div", {class: "answer"});
  const look = async () => {
    let found;
    try {
      found = await ask("/api/runs");
    } catch (error) {
      place.replaceChildren(make("p", {class: "error", role: "alert"}, explained(error)));
      return;
    }
    const rows = found.runs.map(({name, state, problem, curve}, i) => {
      const [step, tokens, loss] = curve.at(-1) ?? [];
      return [`${i + 1}. ${name}`, problem ?? state, step?.toLocaleString("en") ?? "–", tokens?.toLocaleString("en") ?? "–", Number.isFinite(loss) ? number(loss, 3) : "–"];
    });
    const picture = curvesOf(found.runs);
    const shown = table(`Runs in the folder ${found.folder}`, ["run", "state", "step", "tokens", "loss in training"], rows);
    place.replaceChildren(...(picture === null ? [] : [make("h2", {}, "Loss in training"), picture]), shown);
  };
  const again = async () => {
    if (!find(`panel-${tab.id}`).hidden && !document.hidden) await look();
    setTimeout(again, LOOK_AGAIN);
  };
  look().then(() => saved === null && setTimeout(again, LOOK_AGAIN));
  return place;
}
