// Elements of the page. Whatever comes from a model or a person is put into it as text, never as HTML.

export function make(tag, values = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(values)) {
    if (value === false || value === undefined) continue;
    if (typeof value === "function") made.addEventListener(name, value);
    else made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.filter((each) => each !== null));
  return made;
}

export const find = (id) => document.getElementById(id);
export const number = (value, digits = 2) =>
  value.toLocaleString("en", {minimumFractionDigits: digits, maximumFractionDigits: digits}).replace("-", "−");
export const percent = (value) => value >= 0.0005 || value === 0 ? `${number(100 * value, 1)} %` : "< 0.1 %";
// minus infinity, which JSON does not have, comes as null
export const bits = (logProb) => logProb === null ? Infinity : logProb === 0 ? 0 : -logProb / Math.LN2;
export const share = (logProb) => logProb === null ? 0 : Math.exp(logProb);
export const sum = (values) => values.reduce((a, b) => a + b, 0);

// how tokenizers write a space, a line break and the inside of a word
export const surface = (token) => token.replace(/^##/, "").replace(/[Ġ▁]/g, " ").replace(/Ċ/g, "\n");
export const visible = (text) => text.replace(/ /g, "␣").replace(/\n/g, "↵") || "(nothing)";

/** A slice of a text by characters, as the server counts them: to JavaScript some have length 2. */
export function slicer(text) {
  const places = [0];
  for (const character of text) places.push(places.at(-1) + character.length);
  return (begin, end) => text.slice(places[begin], end === undefined ? undefined : places[end]);
}

export function shade(element, strength, hue = "--worse") {
  element.style.setProperty("--share", Math.max(0, Math.min(1, strength)).toFixed(3));
  element.style.setProperty("--hue", `var(${hue})`);
  return element;
}

export function table(caption, heads, rows, kind = "") {
  const cells = rows.map((row) => make("tr", {}, ...row.map((cell, i) => {
    const content = cell instanceof Node ? cell : String(cell);
    return i === 0 ? make("th", {scope: "row"}, content) : make("td", {}, content);
  })));
  const head = make("tr", {}, ...heads.map((each) => make("th", {scope: "col"}, each)));
  const made = make("table", {class: kind}, make("caption", {}, make("span", {}, caption)), make("thead", {}, head), make("tbody", {}, ...cells));
  return make("div", {class: "scroll", tabindex: 0, role: "group", "aria-label": caption}, made);
}

export const bar = (length) => shade(make("span", {class: "bar", "aria-hidden": "true"}), length, "--better");
export const shares = (caption, head, found) =>
  table(caption, [head, "probability", ""], found.map(([word, each]) => [visible(word), percent(each), bar(each)]));

export function draw(tag, values, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(values)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

/** A labelled choice: pairs of a value and what is shown for it. */
export function select(id, label, options, value, change) {
  const input = make("select", {id, name: id.split("-").at(-1), change}, ...options.map(([own, shown]) => make("option", {value: own}, shown)));
  input.value = value;
  return {input, field: make("div", {class: "field"}, make("label", {for: id}, label), input)};
}

/** Shares of rows, as numbers on a colour. */
export function matrix(caption, rows, columns, weights) {
  const made = table(caption, ["", ...columns.map(visible)], weights.map((row, i) => [visible(rows[i]), ...row.map((each) => number(each))]), "matrix");
  [...made.querySelectorAll("tbody tr")].forEach((line, i) => [...line.querySelectorAll("td")].forEach((cell, j) => {
    cell.classList.add("shade");
    shade(cell, weights[i][j], "--better");
  }));
  return made;
}
