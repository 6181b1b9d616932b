// What the tabs do: each puts its answer into a place.

import {bar, bits, make, matrix, number, percent, shade, share, shares, slicer, sum, surface, table, visible} from "./elements.js";
import {beamTree} from "./inside.js";
import {ask, call, events, fieldsOf} from "./server.js";

const HIGHEST_BITS = 10; // of a token: from here on its colour is as strong as it gets
const LARGEST_GAP = 5; // bits of a word under two models
const ALTERNATIVES = 5;
const LONGEST_TREE = 12; // tokens of a search that is drawn
const WORDS_THAT_DIFFER = 10;

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

export async function write(values, place, signal) {
  if (values.how === "beam") {
    await beamTree({model: values.model, text: values.text, beam: Math.min(values.beam, 10), max_tokens: Math.min(values.max_tokens, LONGEST_TREE)}, place, signal);
    return;
  }
  const view = tokenView("The text");
  const summary = make("p", {class: "note"}, "Writing …");
  view.text.append(values.text);
  place.append(legend(), view.text, view.detail, summary);
  const body = {
    model: values.model, prompt: values.text, temperature: values.temperature, max_tokens: values.max_tokens,
    seed: values.seed, logprobs: ALTERNATIVES, stream: true,
  };
  let count = 0, total = 0, written = 0;
  for await (const event of events(await call("/v1/completions", body, signal))) {
    const [choice] = event.choices;
    const {tokens, token_logprobs: logProbs, top_logprobs: best, text_offset: begins} = choice.logprobs;
    const part = slicer(choice.text), start = written;
    written += [...choice.text].length;
    tokens.forEach((token, i) => {
      // a character may need several tokens: its text comes with the last of them
      const content = part(i === 0 ? 0 : begins[i] - start, i === tokens.length - 1 ? undefined : begins[i + 1] - start);
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

export async function fill(values, place, signal) {
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

export async function compare(values, place, signal) {
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

export async function predict(values, place, signal) {
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

export async function translate(values, place, signal) {
  const body = {model: values.model, texts: [values.text], beam: values.beam, n_best: Math.min(values.n_best, values.beam), align: values.align};
  const {translations: [found]} = await ask("/api/translate", body, signal);
  found.forEach((each, i) => {
    place.append(make("h2", {}, found.length > 1 ? `Translation ${i + 1}` : "Translation"), make("p", {class: "text"}, each.text));
    place.append(make("p", {class: "note"}, `log-probability ${number(each.log_prob)}${each.finished ? "" : "; cut at its longest length"}`));
    if (each.alignment) place.append(alignmentOf(each));
  });
  if (values.tree) await beamTree({model: values.model, text: values.text, beam: Math.min(values.beam, 10), max_tokens: LONGEST_TREE}, place, signal);
}

const alignmentOf = ({alignment, tokens, source_tokens: source}) =>
  matrix("Alignment: the share of attention of each new token (row) on each token of the source (column)", tokens.map(surface), source.map(surface), alignment);

export async function neighbours(values, place, signal) {
  const {neighbours: found} = await ask("/api/neighbours", {model: values.model, words: values.text, top: values.top}, signal);
  const rows = found.map((each) => [each.word, number(each.similarity, 3), bar(each.similarity)]);
  place.append(table("Nearest first, by the cosine of their vectors", ["word", "similarity", ""], rows));
}
