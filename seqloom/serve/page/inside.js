// What happens inside a model: attention, cells, the tree of a search.

import {bar, draw, make, matrix, number, percent, select, shade, table, visible} from "./elements.js";
import {ask} from "./server.js";

const PARTS = {
  attention: "Attention", encoder: "Attention of the encoder", decoder: "Attention of the decoder",
  cross: "Attention to the source: a row is what is looked at while its token is written",
};
const STRONGEST = 8; // weights that are listed of a token
const LONGEST_MATRIX = 20; // tokens of a map that is written in numbers
const SHOWN = 3000; // characters of a coloured text

// ---- attention

export async function attention(values, place, signal) {
  const body = {model: values.model, text: values.text, kind: values.kind};
  if (values.target.trim()) body.target = values.target;
  const {parts} = await ask("/api/attention", body, signal);
  place.append(make("p", {class: "note"}, "Weights say what a head looks at, not why the model answers as it does."));
  // the attention to a source is what most want to see first
  for (const part of parts.toSorted((a, b) => (b.part === "cross") - (a.part === "cross"))) place.append(attentionPart(part, body));
}

function attentionPart(first, body) {
  const shown = make("div"), title = PARTS[first.part] ?? first.part;
  const one = first.maps.length === 1 && first.layers > 1;
  const layer = select(`attention-layer-${first.part}`, "Layer", numbered(first.layers), String(first.layer), async () => {
    const problem = make("p", {class: "error", role: "alert"});
    try {
      const {parts} = await ask("/api/attention", {...body, layer: Number(layer.input.value)});
      showHeads(parts.find((each) => each.part === first.part), shown);
    } catch (error) {
      problem.textContent = error.message;
      shown.replaceChildren(problem);
    }
  });
  showHeads(first, shown);
  const all = body.kind === "rollout" && one;
  return make("section", {"aria-label": title}, make("h2", {}, title), all ? make("p", {class: "note"}, "All layers together, by rollout.") : layer.field, shown);
}

const numbered = (most) => Array.from({length: most}, (_, i) => [String(i + 1), String(i + 1)]);

/** Small maps of all heads; one of them is chosen, and shown for a token at a time. */
function showHeads(part, place) {
  const detail = make("div"), buttons = part.maps.map((map, i) => {
    const button = make("button", {type: "button", class: "head", "aria-pressed": "false", click: () => choose(i)}, mapOf(map, part, 96), ` head ${i + 1}`);
    return button;
  });
  let token = part.token - 1;
  const choose = (head) => {
    buttons.forEach((each, i) => each.setAttribute("aria-pressed", String(i === head)));
    const map = part.maps[head], isShort = Math.max(part.queries.length, part.keys.length) <= LONGEST_MATRIX;
    const whole = isShort ? matrix("Rows are tokens that look, columns what they look at", part.queries, part.keys, map) : mapOf(map, part, 480);
    detail.replaceChildren(whole, tokensOf(part, part.maps[head], token, (at) => { token = at; }));
  };
  choose(Math.min(part.head, part.maps.length) - 1);
  place.replaceChildren(part.maps.length > 1 ? make("div", {class: "row", role: "group", "aria-label": "Heads"}, ...buttons) : "", detail);
}

/** The whole map as a picture: rows look at columns. */
function mapOf(map, part, size) {
  const [height, width] = [map.length, map[0].length];
  const canvas = make("canvas", {
    width, height, class: "map", role: "img", "aria-label": `Map of ${height} tokens that look at ${width}; below, token by token`,
  });
  const longest = Math.max(height, width);
  canvas.style.width = `${Math.round(size * width / longest)}px`;
  canvas.style.aspectRatio = `${width} / ${height}`;
  const paint = canvas.getContext("2d"), most = Math.max(...map.flat(), 1e-9);
  paint.fillStyle = getComputedStyle(document.documentElement).getPropertyValue("--better");
  map.forEach((row, i) => row.forEach((weight, j) => {
    paint.globalAlpha = weight / most;
    paint.fillRect(j, i, 1, 1);
  }));
  return canvas;
}

/** A row of tokens to choose from, and what the chosen one looks at. */
function tokensOf(part, map, chosen, remember) {
  const keys = make("p", {class: "text", "aria-live": "polite"}), listed = make("div");
  const buttons = part.queries.map((name, i) => make("button", {type: "button", class: "pick", click: () => choose(i)}, visible(name)));
  const choose = (at) => {
    remember(at);
    buttons.forEach((each, i) => each.setAttribute("aria-pressed", String(i === at)));
    const row = map[at], most = Math.max(...row, 1e-9);
    keys.replaceChildren(...part.keys.flatMap((name, j) => [shade(make("span", {class: "shade"}, visible(name)), row[j] / most, "--better"), " "]));
    const strongest = row.map((weight, j) => [weight, j]).toSorted((a, b) => b[0] - a[0]).slice(0, STRONGEST);
    listed.replaceChildren(table(`What ${visible(part.queries[at])} looks at most`, ["token", "weight", ""],
      strongest.map(([weight, j]) => [`${j + 1}. ${visible(part.keys[j])}`, percent(weight), bar(weight)])));
  };
  choose(Math.min(chosen, part.queries.length - 1));
  return make("div", {}, make("p", {class: "note"}, "Choose a token; below, what it looks at: the darker, the more."),
    make("div", {class: "row", role: "group", "aria-label": "Tokens that look"}, ...buttons), keys, listed);
}

// ---- cells

export async function cells(values, place, signal) {
  const body = {model: values.model, text: values.text};
  if (values.unit.trim()) body.unit = values.unit.trim();
  const found = await ask("/api/cells", body, signal);
  const states = Object.entries(found.states).map(([name, width]) => `${name}.0 to ${name}.${width - 1}`).join(", ");
  const text = make("p", {class: "text"});
  const units = Object.keys(found.units);
  const colour = (unit) => text.replaceChildren(...colouredBy(found.tokens, found.units[unit]));
  const chosen = select("cells-shown", "Unit that colours the text", units.map((unit) => [unit, `${unit}: ${followedBy(found, unit)}`]), units[0], () => colour(chosen.input.value));
  colour(units[0]);
  place.append(
    make("p", {class: "note"}, shade(make("span", {class: "shade"}, " positive "), 1, "--better"), " ", shade(make("span", {class: "shade"}, " negative "), 1, "--worse"),
      ` state of one unit after each token. Units: ${states}.`),
    chosen.field, text,
    table("Units that follow something, chosen on the first half of the text: a correlation that falls on the second was found by chance",
      ["what is followed", "unit", "first half", "second half"],
      found.follows.map((each) => [each.predicate, each.unit, number(each.first), number(each.second)])),
    ...Object.keys(found.states).map((state) => gatesOf(state.split(".")[0], found.gates)).filter((each) => each !== null),
  );
}

function followedBy(found, unit) {
  const followed = found.follows.filter((each) => each.unit === unit).map((each) => each.predicate);
  if (followed.length) return followed.join(", ");
  return found.follow_nothing.some((each) => each.unit === unit) ? "follows nothing" : "asked for";
}

function colouredBy(tokens, values) {
  const shown = [];
  for (let i = 0, length = 0; i < tokens.length && length < SHOWN; length += tokens[i].length, i += 1) {
    const word = make("span", {class: "shade", title: number(values[i])}, tokens[i]);
    shown.push(shade(word, Math.abs(values[i]), values[i] > 0 ? "--better" : "--worse"));
  }
  return shown;
}

/** How often each unit's gates are closed and open. */
function gatesOf(layer, gates) {
  const names = Object.keys(gates).filter((name) => name.startsWith(`${layer}.`));
  if (names.length === 0) return null;
  const [size, edge] = [300, 40], at = (share) => share * (size - 2 * edge);
  const picture = draw("svg", {viewBox: `0 0 ${size} ${size}`, class: "gates", role: "img", "aria-label": `Gates of ${layer}: closed across, open upwards`});
  picture.append(draw("path", {class: "axis", d: `M${edge} ${edge}V${size - edge}H${size - edge}`}));
  picture.append(draw("text", {x: edge, y: size - 12}, "closed, 0 to 100 % of the time"), draw("text", {x: 6, y: edge - 12}, "open, 0 to 100 % of the time"));
  names.forEach((name, i) => gates[name].closed.forEach((closed, unit) => {
    const point = draw("circle", {cx: (edge + at(closed)).toFixed(1), cy: (size - edge - at(gates[name].open[unit])).toFixed(1), r: 2.5});
    point.style.fill = `var(--c${i})`;
    picture.append(point);
  }));
  const names_ = names.map((name, i) => {
    const sign = make("span", {class: "sign"}, "● ");
    sign.style.color = `var(--c${i})`;
    return make("span", {}, sign, `${name.split(".")[1]} gate  `);
  });
  return make("section", {"aria-label": `Gates of ${layer}`}, make("h2", {}, `Gates of ${layer}`), picture, make("p", {class: "note"}, ...names_,
    "Each point is a unit: closed below 0.1, open above 0.9."));
}

// ---- the tree of a beam search

const [ACROSS, DOWN] = [120, 40];

export async function beamTree(body, place, signal) {
  const found = await ask("/api/beam", body, signal);
  place.append(make("h2", {}, "The tree of the search"), make("p", {class: "note"},
    "A number is the log-probability of all tokens so far. ■ ends a result; the way to the best one is strong. Branches without ■ were given up."),
  make("div", {class: "scroll", tabindex: 0, role: "group", "aria-label": "Tree of the search"}, treeOf(found)),
  table("Results", ["text", "log-probability", "score", "finished"],
    found.found.map((each) => [visible(each.text), number(each.log_prob), number(each.score), each.finished ? "yes" : "no"])),
  table("What could follow each beginning", ["beginning", "next", "log-probability", "with it"],
    found.considered.flatMap((each) => each.next.map((next) => [visible(each.text), visible(next.token), number(next.log_prob), number(each.log_prob + next.log_prob)]))));
}

/** Nodes by the tokens that lead to them. */
function nodesOf({prompt, considered, found}) {
  const nodes = new Map(), best = found[0]?.tokens ?? [];
  const add = (tokens, text, logProb) => {
    const key = tokens.join(" ");
    if (!nodes.has(key)) nodes.set(key, {tokens, text, logProb, children: [], end: null});
    return nodes.get(key);
  };
  add([], prompt, 0);
  for (const each of considered.toSorted((a, b) => a.tokens.length - b.tokens.length)) add(each.tokens, each.text, each.log_prob);
  for (const each of found) add(each.tokens, each.text, each.log_prob).end = each;
  for (const node of nodes.values()) {
    node.isBest = node.tokens.every((token, i) => best[i] === token);
    if (node.tokens.length === 0) continue;
    let parent, size = node.tokens.length - 1;
    do parent = nodes.get(node.tokens.slice(0, size).join(" ")); while (parent === undefined && size-- > 0);
    const before = parent.tokens.length ? parent.text : "";
    node.label = node.text.startsWith(before) ? node.text.slice(before.length) : node.text;
    parent.children.push(node);
  }
  return nodes.get("");
}

function treeOf(found) {
  const root = nodesOf(found);
  let rows = 0, deepest = 0;
  const lay = (node) => {
    node.x = 10 + ACROSS * node.tokens.length;
    deepest = Math.max(deepest, node.tokens.length);
    node.children.sort((a, b) => b.isBest - a.isBest || b.logProb - a.logProb).forEach(lay);
    node.y = node.children.length ? (node.children[0].y + node.children.at(-1).y) / 2 : 24 + DOWN * rows++;
  };
  lay(root);
  const [width, height] = [ACROSS * (deepest + 1) + 20, DOWN * rows + 10];
  const picture = draw("svg", {viewBox: `0 0 ${width} ${height}`, width, height, class: "tree", role: "img", "aria-label": "Tree of the search; the tables have its numbers"});
  const put = (node) => {
    for (const child of node.children) {
      picture.append(draw("path", {class: child.isBest ? "best" : "", d: `M${node.x + 70} ${node.y}C${node.x + 100} ${node.y} ${child.x - 30} ${child.y} ${child.x - 4} ${child.y}`}));
      put(child);
    }
    const label = visible(node.tokens.length ? node.label : node.text.slice(-8));
    picture.append(draw("text", {x: node.x, y: node.y, class: node.isBest ? "best" : ""}, label.slice(0, 10) + (node.end ? " ■" : "")));
    const numbers = node.end ? `${number(node.logProb)}, score ${number(node.end.score)}` : number(node.logProb);
    if (node.tokens.length) picture.append(draw("text", {x: node.x, y: node.y + 14, class: "small"}, numbers));
  };
  put(root);
  return picture;
}
