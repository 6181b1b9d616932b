// What is asked of the server.

import {find} from "./elements.js";

export class Refused extends Error {}
let key = null;

export async function call(path, body, signal) {
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
