// Calls of the server's own APIs, as the tests of pages make what the pages are to show.

import assert from "node:assert/strict";

/** Sends JSON, and answers what came; anything but a success ends the test. */
export async function call(method, address, body, type = "application/json") {
  const answer = await fetch(address, { method, headers: { "content-type": type, accept: type }, body: JSON.stringify(body) });
  const text = await answer.text();
  assert.ok(answer.ok, `${method} ${address}: ${answer.status} ${text}`);
  return text === "" ? null : JSON.parse(text);
}

/** Stores records by the REST proxy at `rest`. */
export const produce = (rest, topic, records) =>
  call("POST", new URL(`topics/${encodeURIComponent(topic)}`, rest), { records }, "application/vnd.kafka.json.v2+json");
