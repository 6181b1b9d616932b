// What is asked of the server.

import {find} from "./elements.js";

export class Refused extends Error {}
export const known = {models: [], watched: null};
let key = null;

export const namesThatCan = (can) => known.models.filter((each) => each.can.includes(can)).map((each) => each.id);

/** What a row of a task has; words are found in a text. */
export const fieldsOf = (model) => known.models.find((each) => each.id === model).fields.filter((name) => name !== "words");

// A page that was saved as a file has its answers with it, by what was asked.
export const saved = JSON.parse(find("saved")?.textContent ?? "null");

function inOrder(value) {
  if (value === null || typeof value !== "object") return JSON.stringify(value);
  if (Array.isArray(value)) return `[${value.map(inOrder).join(",")}]`;
  return `{${Object.keys(value).filter((name) => value[name] !== undefined).sort().map((name) => `${JSON.stringify(name)}:${inOrder(value[name])}`).join(",")}}`;
}

function savedAnswer(path, body) {
  const found = saved.answers[body === undefined ? path : `${path} ${inOrder(body)}`];
  if (found === undefined) throw new Refused(`This page was saved with the answers to a few questions, and this is not one of them: choose one above, or ask a server (${saved.command}).`);
  return {json: async () => found, events: found};
}

export async function call(path, body, signal) {
  if (saved !== null) return savedAnswer(path, body);
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

export const ask = async (path, body, signal) => (await call(path, body, signal)).json();

export function askForKey() {
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

export function explained(error) {
  if (error.name === "AbortError") return "Stopped.";
  if (error instanceof Refused) return error.message;
  return error instanceof TypeError ? "The server cannot be reached: is it still running?" : `The page failed: ${error.message}`;
}

export async function* events(response) {
  if (saved !== null) {
    yield* response.events;
    return;
  }
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
