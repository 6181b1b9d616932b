// The page of `seqloom serve`: a tab for everything that one of the served models can do.

import {compare, fill, neighbours, predict, translate, write} from "./answers.js";
import {runsPanel} from "./curves.js";
import {find, make, select} from "./elements.js";
import {attention, cells} from "./inside.js";
import {ask, explained, fieldsOf, known, namesThatCan, saved} from "./server.js";

// ---- the tabs themselves

const area = (name, label, value = "") => ({name, label, kind: "textarea", value});
const count = (name, label, value, min, max, step = 1) => ({name, label, kind: "number", value, min, max, step});
const choice = (name, label, options) => ({name, label, kind: "select", options, value: options[0][0]});
const TABS = [
  {id: "write", title: "Write", can: "write", answer: write, button: "Write", fields: [
    area("text", "Text to continue"), choice("how", "How", [["sample", "Sample"], ["beam", "Beam search, as a tree"]]), count("temperature", "Temperature", 0.8, 0, 2, "any"),
    count("max_tokens", "New tokens", 60, 1, 4096), count("seed", "Seed", 0, 0, 2 ** 53 - 1),
    count("beam", "Beam", 3, 1, 10),
  ]},
  {id: "compare", title: "Compare", can: "score", answer: compare, button: "Compare", second: true, fields: [area("text", "Text that both models read")]},
  {id: "fill", title: "Fill", can: "fill", answer: fill, button: "Fill", fields: [
    area("text", "Text with [MASK] where something is missing"), count("top", "Words for each gap", 5, 1, 100),
  ]},
  {id: "predict", title: "Predict", can: "predict", answer: predict, button: "Predict", fields: []},
  {id: "translate", title: "Translate", can: "translate", answer: translate, button: "Translate", fields: [
    area("text", "Text to translate"), count("beam", "Beam", 4, 1, 32), count("n_best", "Translations", 1, 1, 32),
    {name: "align", label: "Show the alignment", kind: "checkbox", value: true},
    {name: "tree", label: "Show the tree of the search", kind: "checkbox", value: false},
  ]},
  {id: "vectors", title: "Vectors", can: "neighbours", answer: neighbours, button: "Find neighbours", fields: [
    {...area("text", "Word, or a sum such as king - man + woman"), rows: 1}, count("top", "Neighbours", 10, 1, 1000),
  ]},
  {id: "attention", title: "Attention", can: "attention", answer: attention, button: "Show attention", fields: [
    area("text", "Text, of up to 128 tokens"), {...area("target", "Of a translator: what is written (empty: what it writes itself)"), rows: 1},
    choice("kind", "What is shown", [["weights", "Weights"], ["norm-weighted", "Weights times the length of what is weighed"], ["rollout", "Rollout: all layers together"]]),
  ]},
  {id: "cells", title: "Cells", can: "cells", answer: cells, button: "Show cells", fields: [
    area("text", "Text, of twenty tokens or more"), {name: "unit", label: "Unit to show, as layer0.cell.17 (may be empty)", kind: "text", value: ""},
  ]},
  {id: "runs", title: "Runs", panel: runsPanel},
];
const FIELD_LABELS = {text: "Text", text2: "Second text", choices: "Choices, one on each line", question: "Question", context: "Text that has the answer"};

function fieldElement(tab, {name, label, kind, value, min, max, step, options, rows = 3}) {
  const id = `${tab.id}-${name}`;
  if (kind === "select") return select(id, label, options, value).field;
  const input = kind === "textarea"
    ? make("textarea", {id, name, rows, spellcheck: "false"})
    : make("input", {id, name, type: kind, min, max, step, required: kind === "number", autocomplete: "off"});
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
  if (saved !== null) form.prepend(savedQuestions(tab, form));
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

/** What can be asked of a saved page. */
function savedQuestions(tab, form) {
  const own = saved.questions.filter((each) => each.tab === tab.id);
  const put = (at) => {
    restore(form, new URLSearchParams(own[at].values));
    form.requestSubmit();
  };
  const options = own.map((each, i) => [String(i), Object.values(each.values).join(" · ")]);
  const chosen = select(`${tab.id}-saved`, "Answers that were saved", options, "0", () => put(Number(chosen.input.value)));
  chosen.input.removeAttribute("name");
  queueMicrotask(() => put(0));
  return chosen.field;
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
    known.models = (await ask("/v1/models")).data;
    known.watched = (await ask("/api/runs")).folder;
  } catch (error) {
    find("served").textContent = explained(error);
    return;
  }
  const names = known.models.map((each) => each.id).join(", ") || known.watched;
  find("served").textContent = saved === null ? `Served: ${names}` : `Saved on ${saved.date} with answers of ${names}. Anything else needs a server: ${saved.command}`;
  const tabs = TABS.filter((tab) => saved === null ? (tab.panel ? known.watched !== null : namesThatCan(tab.can).length > 0)
    : (tab.panel ? known.watched !== null : saved.questions.some((each) => each.tab === tab.id)));
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
