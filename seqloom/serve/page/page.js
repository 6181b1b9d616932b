// The page of `seqloom serve`: a tab for everything that one of the served models can do.
// Whatever comes from a model or a person is put into the page as text, never as HTML.
"use strict";

const HIGHEST_BITS = 10; // of a token: from here on its colour is as strong as it gets
const LARGEST_GAP = 5; // bits of a word under two models
const ALTERNATIVES = 5;
const WORDS_THAT_DIFFER = 10;

// ---- elements

function make(tag, values = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(values)) {
    if (value === false || value === undefined) continue;
    if (typeof value === "function") made.addEventListener(name, value);
    else made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.filter((each) => each !== null));
  return made;
}

const find = (id) => document.getElementById(id);
const number = (value, digits = 2) =>
  value.toLocaleString("en", {minimumFractionDigits: digits, maximumFractionDigits: digits}).replace("-", "−");
const percent = (value) => value >= 0.0005 || value === 0 ? `${number(100 * value, 1)} %` : "< 0.1 %";
// minus infinity, which JSON does not have, comes as null
const bits = (logProb) => logProb === null ? Infinity : logProb === 0 ? 0 : -logProb / Math.LN2;
const share = (logProb) => logProb === null ? 0 : Math.exp(logProb);
const sum = (values) => values.reduce((a, b) => a + b, 0);

// how tokenizers write a space, a line break and the inside of a word
const surface = (token) => token.replace(/^##/, "").replace(/[Ġ▁]/g, " ").replace(/Ċ/g, "\n");
const visible = (text) => text.replace(/ /g, "␣").replace(/\n/g, "↵") || "(nothing)";

/** A slice of a text by characters, as the server counts them: to JavaScript some have length 2. */
function slicer(text) {
  const places = [0];
  for (const character of text) places.push(places.at(-1) + character.length);
  return (begin, end) => text.slice(places[begin], end === undefined ? undefined : places[end]);
}

function shade(element, strength, hue = "--worse") {
  element.style.setProperty("--share", Math.max(0, Math.min(1, strength)).toFixed(3));
  element.style.setProperty("--hue", `var(${hue})`);
  return element;
}

function table(caption, heads, rows, kind = "") {
  const cells = rows.map((row) => make("tr", {}, ...row.map((cell, i) => {
    const content = cell instanceof Node ? cell : String(cell);
    return i === 0 ? make("th", {scope: "row"}, content) : make("td", {}, content);
  })));
  const head = make("tr", {}, ...heads.map((each) => make("th", {scope: "col"}, each)));
  const made = make("table", {class: kind}, make("caption", {}, caption), make("thead", {}, head), make("tbody", {}, ...cells));
  return make("div", {class: "scroll", tabindex: 0, role: "group", "aria-label": caption}, made);
}

const bar = (length) => shade(make("span", {class: "bar", "aria-hidden": "true"}), length, "--better");
const shares = (caption, head, found) =>
  table(caption, [head, "probability", ""], found.map(([word, each]) => [visible(word), percent(each), bar(each)]));

// ---- the server

class Refused extends Error {}
let key = null;

async function call(path, body, signal) {
  const headers = key === null ? {} : {authorization: `Bearer ${key}`};
  if (body !== undefined) headers["content-type"] = "application/json";
  const options = {method: body === undefined ? "GET" : "POST", headers, body: JSON.stringify(body), signal};
  const response = await fetch(path, options);
  if (response.status === 401) {
    await askForKey();
    return call(path, body, signal);
  }
  if (!response.ok) {
    const found = await response.json().catch(() => null);
    throw new Refused(found?.error?.message ?? `the server answered with status ${response.status}`);
  }
  return response;
}

const ask = async (path, body, signal) => (await call(path, body, signal)).json();

function askForKey() {
  const form = find("key"), given = find("key-text");
  form.hidden = false;
  given.focus();
  return new Promise((go) => {
    form.onsubmit = (event) => {
      event.preventDefault();
      key = given.value;
      given.value = "";
      form.hidden = true;
      go();
    };
  });
}

function explained(error) {
  if (error.name === "AbortError") return "Stopped.";
  if (error instanceof Refused) return error.message;
  return error instanceof TypeError ? "The server cannot be reached: is it still running?" : `The page failed: ${error.message}`;
}

async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const {value, done} = await reader.read();
    if (done) return;
    const parts = (rest + value).split("\n\n");
    rest = parts.pop();
    for (const part of parts) {
      const data = part.replace(/^data: /, "");
      if (data === "[DONE]") return;
      const event = JSON.parse(data);
      if (event.error) throw new Refused(event.error.message);
      yield event;
    }
  }
}

// ---- tokens that show their details when the mouse or the keyboard is on them

function tokenView(label) {
  const text = make("p", {class: "text", role: "group", "aria-label": `${label}: move with the arrow keys`});
  const detail = make("div", {class: "detail", "aria-live": "polite"}, make("p", {class: "note"}, "Point at a token, or move with the arrow keys."));
  const show = (token, build) => {
    for (const each of text.querySelectorAll("[aria-current]")) each.removeAttribute("aria-current");
    token.setAttribute("aria-current", "true");
    detail.replaceChildren(...build());
  };
  text.addEventListener("keydown", (event) => {
    const step = {ArrowRight: 1, ArrowLeft: -1, ArrowDown: 1, ArrowUp: -1}[event.key];
    const all = [...text.querySelectorAll(".token")], next = all[all.indexOf(document.activeElement) + step];
    if (!step || !next) return;
    event.preventDefault();
    document.activeElement.tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  });
  const add = (content, logProb, build) => {
    const first = text.querySelector(".token") === null;
    const token = make("span", {class: "token", tabindex: first ? 0 : -1}, content);
    for (const event of ["focus", "mouseenter", "click"]) token.addEventListener(event, () => show(token, build));
    text.append(shade(token, bits(logProb) / HIGHEST_BITS));
  };
  return {text, detail, add};
}

const legend = () => make("p", {class: "note"}, "likely", make("span", {class: "legend"}), `surprising (${HIGHEST_BITS} bits or more)`);

const described = (content, logProb) =>
  make("p", {}, make("strong", {}, visible(content)), ` has probability ${percent(share(logProb))}: ${number(bits(logProb))} bits`);

// ---- what the tabs do: each puts its answer into a place

async function write(values, place, signal) {
  const view = tokenView("The text");
  const summary = make("p", {class: "note"}, "Writing …");
  view.text.append(values.text);
  place.append(legend(), view.text, view.detail, summary);
  const body = {
    model: values.model, prompt: values.text, temperature: values.temperature, max_tokens: values.max_tokens,
    seed: values.seed, logprobs: ALTERNATIVES, stream: true,
  };
  let count = 0, total = 0;
  for await (const event of events(await call("/v1/completions", body, signal))) {
    const [choice] = event.choices;
    const {tokens, token_logprobs: logProbs, top_logprobs: best} = choice.logprobs;
    tokens.forEach((token, i) => {
      // a character may need several tokens: its text comes with the last of them
      const content = i === tokens.length - 1 ? choice.text : "";
      const others = Object.entries(best[i]).map(([name, logProb]) => [surface(name), share(logProb)]);
      view.add(content, logProbs[i], () => [
        described(surface(token), logProbs[i]), shares("The likeliest tokens in this place", "token", others),
      ]);
    });
    count += tokens.length;
    total += sum(logProbs.map(bits));
    if (choice.finish_reason) {
      const why = choice.finish_reason === "stop" ? "the model ended the text" : "as many as were asked for";
      summary.textContent = `${count} tokens (${why}), ${number(total / Math.max(count, 1))} bits per token.`;
    }
  }
}

async function fill(values, place, signal) {
  const found = await ask("/api/fill", {model: values.model, text: values.text, top: values.top}, signal);
  found.gaps.forEach((gap, i) => {
    const rows = gap.map((each) => [each.words.join(" "), each.probability]);
    place.append(make("h2", {}, found.gaps.length > 1 ? `Gap ${i + 1}` : "The gap"), shares("Likeliest first", "word", rows));
  });
}

/** The words of a text with the bits that a model needs for each: those of the tokens that end in it. */
function bitsOfWords(text, score) {
  const words = [...text.matchAll(/\S+/g)].map((found) => ({word: found[0], end: found.index + found[0].length, bits: 0}));
  const part = slicer(text);
  score.offsets.forEach(([, end], i) => {
    const owner = words.find((word) => part(0, end).length <= word.end) ?? words.at(-1);
    if (owner) owner.bits += bits(score.log_probs[i]);
  });
  return words;
}

function scoredText(name, text, found) {
  const view = tokenView(`The text under ${name}`), [score] = found.scores, part = slicer(text);
  let at = 0;
  score.offsets.forEach(([begin, end], i) => {
    if (begin > at) view.text.append(part(at, begin));
    // tokens inside one character share it: the first of them shows it
    const content = end > at ? part(Math.max(begin, at), end) : "";
    view.add(content, score.log_probs[i], () => [described(part(begin, end), score.log_probs[i])]);
    at = Math.max(at, end);
  });
  view.text.append(part(at));
  const note = make("p", {class: "note"}, `Its score: ${found.definition}`);
  return make("section", {"aria-label": name}, make("h2", {}, name), view.text, view.detail, note);
}

async function compare(values, place, signal) {
  const names = [values.model, values.other], text = values.text;
  const found = await Promise.all(names.map((model) => ask("/api/score", {model, texts: [text]}, signal)));
  const length = [...text].length;
  const rows = found.map(({scores: [score]}, i) => {
    const total = bits(score.log_prob), count = score.tokens.length;
    return [names[i], count, number(total, 1), number(total / Math.max(count, 1)), number(total / Math.max(length, 1), 3)];
  });
  place.append(table(
    "Fewer bits: the model expected the text more. Models with different tokens are compared per character.",
    ["model", "tokens", "bits", "bits per token", "bits per character"], rows,
  ));
  if (found[0].definition !== found[1].definition) {
    place.append(make("p", {class: "error"}, "These two scores are defined differently (see below each text): do not compare their sizes."));
  }
  place.append(legend(), make("div", {class: "two"}, ...names.map((name, i) => scoredText(name, text, found[i]))));
  place.append(...differences(names, text, found));
}

function differences(names, text, found) {
  const [one, other] = found.map((each) => bitsOfWords(text, each.scores[0]));
  const all = one.map((each, i) => ({word: each.word, one: each.bits, other: other[i].bits, gap: each.bits - other[i].bits}));
  const shown = make("p", {class: "text"});
  let at = 0;
  all.forEach((each, i) => {
    const begin = one[i].end - each.word.length;
    const word = make("span", {class: "shade"}, each.word);
    shown.append(text.slice(at, begin), shade(word, Math.abs(each.gap) / LARGEST_GAP, each.gap > 0 ? "--worse" : "--better"));
    at = one[i].end;
  });
  const most = all.toSorted((a, b) => Math.abs(b.gap) - Math.abs(a.gap)).slice(0, WORDS_THAT_DIFFER);
  const rows = most.map((each) => [each.word, number(each.one), number(each.other), (each.gap > 0 ? "+" : "") + number(each.gap)]);
  const hues = [["--better", names[0]], ["--worse", names[1]]].map(([hue, name]) => shade(make("span", {class: "shade"}, ` ${name} `), 1, hue));
  return [
    make("h2", {}, "Where they differ most"),
    make("p", {class: "note"}, "The colour says which model expected a word more: ", hues[0], " or ", hues[1], "."),
    shown, table("Bits of words", ["word", `${names[0]} (first)`, `${names[1]} (second)`, "first − second"], rows),
  ];
}

async function predict(values, place, signal) {
  const [first, ...further] = fieldsOf(values.model);
  // a second text may be left out where a task takes one or two
  const row = Object.fromEntries([first, ...further.filter((name) => values[name].trim())].map((name) => [name, values[name]]));
  if (row.choices !== undefined) row.choices = row.choices.split("\n").filter((each) => each.trim());
  const {predictions: [found]} = await ask("/api/predict", {model: values.model, rows: [row]}, signal);
  if (found.tags) {
    place.append(make("h2", {}, "Tags"), taggedText(row.text, found));
    place.append(table("Every word", ["word", "tag", "probability"], found.words.map((word, i) => [word, found.tags[i], percent(found.probabilities[i])])));
  } else if (found.answer !== undefined) {
    const answer = found.answer === "" ? "The text does not say." : found.answer;
    place.append(make("h2", {}, "Answer"), make("p", {class: "text"}, answer));
    place.append(shares("Other answers", "answer", (found.n_best ?? []).map((each) => [each.answer, each.probability])));
  } else {
    place.append(make("h2", {}, "Prediction"), make("p", {class: "text"}, make("strong", {}, String(found.label))));
    if (found.probabilities) place.append(shares("Every class", "class", Object.entries(found.probabilities).sort((a, b) => b[1] - a[1])));
  }
}

function taggedText(text, found) {
  const shown = make("p", {class: "text"}), part = slicer(text);
  let at = 0;
  for (const {begin, end, kind} of found.entities) {
    shown.append(part(at, begin), make("mark", {}, part(begin, end), make("small", {}, kind)));
    at = end;
  }
  shown.append(part(at));
  return shown;
}

async function translate(values, place, signal) {
  const body = {model: values.model, texts: [values.text], beam: values.beam, n_best: Math.min(values.n_best, values.beam), align: values.align};
  const {translations: [found]} = await ask("/api/translate", body, signal);
  found.forEach((each, i) => {
    place.append(make("h2", {}, found.length > 1 ? `Translation ${i + 1}` : "Translation"), make("p", {class: "text"}, each.text));
    place.append(make("p", {class: "note"}, `log-probability ${number(each.log_prob)}${each.finished ? "" : "; cut at its longest length"}`));
    if (each.alignment) place.append(alignmentOf(each));
  });
}

function alignmentOf({alignment, tokens, source_tokens: source}) {
  const rows = alignment.map((row, i) => [visible(surface(tokens[i])), ...row.map((each) => number(each))]);
  const made = table("Alignment: the share of attention of each new token (row) on each token of the source (column)",
    ["", ...source.map((each) => visible(surface(each)))], rows, "matrix");
  [...made.querySelectorAll("tbody tr")].forEach((line, i) => [...line.querySelectorAll("td")].forEach((cell, j) => {
    cell.classList.add("shade");
    shade(cell, alignment[i][j], "--better");
  }));
  return made;
}

async function neighbours(values, place, signal) {
  const {neighbours: found} = await ask("/api/neighbours", {model: values.model, words: values.text, top: values.top}, signal);
  const rows = found.map((each) => [each.word, number(each.similarity, 3), bar(each.similarity)]);
  place.append(table("Nearest first, by the cosine of their vectors", ["word", "similarity", ""], rows));
}

// ---- runs of a folder, also of those that are being trained

const LOOK_AGAIN = 5000; // milliseconds
const COLOURS = 12; // of the palette

function draw(tag, values, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(values)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

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

function runsPanel(tab) {
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
  look().then(() => setTimeout(again, LOOK_AGAIN));
  return place;
}

// ---- the tabs themselves

const area = (name, label, value = "") => ({name, label, kind: "textarea", value});
const count = (name, label, value, min, max, step = 1) => ({name, label, kind: "number", value, min, max, step});
const TABS = [
  {id: "write", title: "Write", can: "write", answer: write, button: "Write", fields: [
    area("text", "Text to continue"), count("temperature", "Temperature", 0.8, 0, 2, "any"),
    count("max_tokens", "New tokens", 60, 1, 4096), count("seed", "Seed", 0, 0, 2 ** 53 - 1),
  ]},
  {id: "compare", title: "Compare", can: "score", answer: compare, button: "Compare", second: true, fields: [area("text", "Text that both models read")]},
  {id: "fill", title: "Fill", can: "fill", answer: fill, button: "Fill", fields: [
    area("text", "Text with [MASK] where something is missing"), count("top", "Words for each gap", 5, 1, 100),
  ]},
  {id: "predict", title: "Predict", can: "predict", answer: predict, button: "Predict", fields: []},
  {id: "translate", title: "Translate", can: "translate", answer: translate, button: "Translate", fields: [
    area("text", "Text to translate"), count("beam", "Beam", 4, 1, 32), count("n_best", "Translations", 1, 1, 32),
    {name: "align", label: "Show the alignment", kind: "checkbox", value: true},
  ]},
  {id: "vectors", title: "Vectors", can: "neighbours", answer: neighbours, button: "Find neighbours", fields: [
    {...area("text", "Word, or a sum such as king - man + woman"), rows: 1}, count("top", "Neighbours", 10, 1, 1000),
  ]},
  {id: "runs", title: "Runs", panel: runsPanel},
];
const FIELD_LABELS = {text: "Text", text2: "Second text", choices: "Choices, one on each line", question: "Question", context: "Text that has the answer"};
let models = [], watched = null;

const namesThatCan = (can) => models.filter((each) => each.can.includes(can)).map((each) => each.id);

/** What a row of a task has; words are found in a text. */
const fieldsOf = (model) => models.find((each) => each.id === model).fields.filter((name) => name !== "words");

function fieldElement(tab, {name, label, kind, value, min, max, step, rows = 3}) {
  const id = `${tab.id}-${name}`;
  const input = kind === "textarea"
    ? make("textarea", {id, name, rows, spellcheck: "false"})
    : make("input", {id, name, type: kind, min, max, step, required: kind !== "checkbox", autocomplete: "off"});
  if (kind === "checkbox") input.checked = value;
  else input.value = value;
  const parts = [make("label", {for: id}, label), input];
  return make("div", {class: kind === "checkbox" ? "field tick" : "field"}, ...(kind === "checkbox" ? parts.reverse() : parts));
}

function modelElement(tab, name, label, names, chosen) {
  const id = `${tab.id}-${name}`;
  const select = make("select", {id, name}, ...names.map((each) => make("option", {value: each}, each)));
  select.selectedIndex = Math.min(chosen, names.length - 1);
  return make("div", {class: "field"}, make("label", {for: id}, label), select);
}

function formAndAnswer(tab) {
  const names = namesThatCan(tab.can);
  const chosen = [modelElement(tab, "model", tab.second ? "First model" : "Model", names, 0)];
  if (tab.second) chosen.push(modelElement(tab, "other", "Second model", names, 1));
  const large = make("div", {class: "large"}), small = make("div", {class: "fields"}, ...chosen);
  for (const field of tab.fields) (field.kind === "textarea" ? large : small).append(fieldElement(tab, field));
  const stop = make("button", {type: "button", hidden: true}, "Stop");
  const submit = make("button", {type: "submit"}, tab.button);
  const form = make("form", {}, large, small, make("div", {class: "row"}, submit, stop));
  const place = make("div", {"aria-live": "polite", class: "answer"});
  if (tab.id === "predict") {
    const select = form.elements.model;
    const build = () => large.replaceChildren(...fieldsOf(select.value).map((name) => fieldElement(tab, area(name, FIELD_LABELS[name] ?? name))));
    select.addEventListener("change", build);
    build();
  }
  form.addEventListener("input", () => keep(tab));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    answer(tab, form, place, submit, stop);
  });
  // Enter makes a new line in a text; with Ctrl it asks
  form.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit();
  });
  return [form, place];
}

function valuesOf(form) {
  const named = [...form.elements].filter((each) => each.name);
  return Object.fromEntries(named.map((each) =>
    [each.name, each.type === "checkbox" ? each.checked : each.type === "number" ? each.valueAsNumber : each.value]));
}

async function answer(tab, form, place, submit, stop) {
  const stopping = new AbortController();
  stop.onclick = () => stopping.abort();
  submit.disabled = true;
  stop.hidden = false;
  place.setAttribute("aria-busy", "true");
  place.replaceChildren();
  try {
    await tab.answer(valuesOf(form), place, stopping.signal);
  } catch (error) {
    place.append(make("p", {class: "error", role: "alert"}, explained(error)));
  } finally {
    place.removeAttribute("aria-busy");
    submit.disabled = false;
    stop.hidden = true;
  }
}

// ---- the address keeps what was typed: #write?text=…

const formOf = (tab) => find(`panel-${tab.id}`).querySelector("form");
const keep = (tab) => history.replaceState(null, "", `#${tab.id}?${new URLSearchParams(formOf(tab) ? valuesOf(formOf(tab)) : {})}`);

function restore(form, given) {
  const model = given.get("model");
  if (model !== null && [...form.elements.model.options].some((each) => each.value === model)) {
    form.elements.model.value = model;
    form.elements.model.dispatchEvent(new Event("change"));
  }
  for (const input of [...form.elements].filter((each) => each.name && each.name !== "model" && given.has(each.name))) {
    const value = given.get(input.name);
    if (input.type === "checkbox") input.checked = value === "true";
    else if (input.tagName !== "SELECT" || [...input.options].some((each) => each.value === value)) input.value = value;
  }
}

function openTab(id) {
  for (const each of find("tabs").children) {
    const own = each.id === `tab-${id}`;
    each.setAttribute("aria-selected", own);
    each.tabIndex = own ? 0 : -1;
    find(each.getAttribute("aria-controls")).hidden = !own;
  }
}

function openAddress(tabs) {
  const [id, given] = location.hash.slice(1).split(/\?(.*)/s);
  const tab = tabs.find((each) => each.id === id) ?? tabs[0];
  openTab(tab.id);
  if (formOf(tab)) restore(formOf(tab), new URLSearchParams(given ?? ""));
}

async function start() {
  try {
    models = (await ask("/v1/models")).data;
    watched = (await ask("/api/runs")).folder;
  } catch (error) {
    find("served").textContent = explained(error);
    return;
  }
  find("served").textContent = `Served: ${models.map((each) => each.id).join(", ") || watched}`;
  const tabs = TABS.filter((tab) => tab.panel ? watched !== null : namesThatCan(tab.can).length > 0);
  if (tabs.length === 0) return;
  for (const tab of tabs) {
    const choose = () => {
      openTab(tab.id);
      keep(tab);
    };
    const button = make("button", {
      type: "button", role: "tab", id: `tab-${tab.id}`, "aria-controls": `panel-${tab.id}`, click: choose,
    }, tab.title);
    find("tabs").append(button);
    const content = tab.panel ? [tab.panel(tab)] : formAndAnswer(tab);
    find("panels").append(make("section", {id: `panel-${tab.id}`, role: "tabpanel", "aria-labelledby": button.id, hidden: true}, ...content));
  }
  find("tabs").addEventListener("keydown", (event) => {
    const all = [...find("tabs").children], at = all.indexOf(document.activeElement);
    const to = {ArrowRight: at + 1, ArrowLeft: at - 1 + all.length, Home: 0, End: all.length - 1}[event.key];
    if (to === undefined || at < 0) return;
    event.preventDefault();
    all[to % all.length].click();
    all[to % all.length].focus();
  });
  openAddress(tabs);
  window.addEventListener("hashchange", () => openAddress(tabs));
}

start();
