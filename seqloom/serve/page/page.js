// The page of `seqloom serve`: a tab for everything that one of the served models can do.

import {find, make} from "./elements.js";
import {ask, explained} from "./server.js";

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
