// Against a real relayer, whose URL is in MEMRELAY_TEST_URL.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import { execFileSync } from "node:child_process";
import { randomBytes } from "node:crypto";
import { test } from "node:test";
import { generateText, streamText, wrapLanguageModel } from "ai";
import { convertArrayToReadableStream, MockLanguageModelV3 } from "ai/test";
import { memoryMiddleware } from "../dist/ai-sdk.js";
import { Memory, MemoryTrustStore } from "../dist/index.js";

const url = process.env.MEMRELAY_TEST_URL;
const skip = url ? false : "MEMRELAY_TEST_URL is not set";
const opened = (more = {}) => new Memory({ url, secret: randomBytes(32).toString("hex"), trust: new MemoryTrustStore(), agent: "support", ...more });
const all = async (iterable) => Array.fromAsync?.(iterable) ?? collected(iterable);
async function collected(iterable) {
  const items = [];
  for await (const item of iterable) items.push(item);
  return items;
}

test("a memory lives from add to erase", { skip }, async () => {
  const memory = opened({ user: "Ana" });
  const added = await memory.add("I am allergic to peanuts.", { tags: ["health"], metadata: { ticket: 4711 }, session: "s1" });
  assert.equal(added.status, "stored");
  assert.equal((await memory.add("I am allergic to peanuts.", { tags: ["health"], metadata: { ticket: 4711 }, session: "s1" })).status, "duplicate");
  const [hit] = await memory.search("What must I not cook with peanuts?", { where: { ticket: { gte: 4000 } } });
  assert.equal(hit.id, added.id);
  assert.deepEqual([hit.tags, hit.metadata, hit.session], [["health"], { ticket: 4711 }, "s1"]);
  assert.deepEqual(await memory.search("peanuts", { where: { ticket: 1 } }), []);
  const updated = await memory.update(added.id, { text: "I am allergic to peanuts and soy." });
  assert.deepEqual((await memory.history(updated.id)).map((one) => one.id).includes(added.id), true);
  assert.equal((await memory.get(updated.id)).text, "I am allergic to peanuts and soy.");
  await memory.delete(updated.id);
  assert.deepEqual(await collected(memory.list()), []);
  await memory.restore(updated.id);
  assert.deepEqual((await collected(memory.list({ where: { tags: "health" } }))).map((one) => one.id), [updated.id]);
  const { changes, cursor } = await memory.changes();
  assert.ok(changes.some((one) => one.change === "restored"));
  assert.deepEqual((await memory.changes(cursor)).changes, []);
  assert.ok((await memory.profile()).text.includes("soy") || (await memory.profile()).total >= 0);
  assert.deepEqual(await memory.users(), ["Ana"]);
  const exported = await collected(memory.export());
  const other = opened();
  assert.deepEqual(await other.import(exported), { stored: 1, duplicate: 0, skipped: 0, refused: 0 });
  assert.deepEqual(await other.import(exported), { stored: 0, duplicate: 1, skipped: 0, refused: 0 });
  assert.match((await memory.erase(updated.id)).state, /^(erased|destroyed|confirmed)$/);
  await assert.rejects(memory.get(updated.id), { name: "RelayerRefused", code: "not_found" });
  await memory.add("I live in Lisbon.");
  assert.match((await memory.eraseAll()).state, /^(erased|destroyed|confirmed)$/);
  assert.deepEqual(await memory.users(), []);
  await assert.rejects(other.ask("What?"), { code: "no_model" });
  memory.close();
  await assert.rejects(memory.search("peanuts"), { name: "MemrelayError" });
});

test("messages are extracted from, and a bad argument names its field", { skip }, async () => {
  const memory = opened();
  const added = await memory.add([{ role: "user", content: "I moved to Lisbon in March." }, { role: "assistant", content: "Noted." }]);
  assert.equal(added.status, "stored");
  await assert.rejects(memory.add([{ role: "robot", content: "x" }]), { name: "InvalidInput", field: "content[0].role" });
  await assert.rejects(memory.add("x", { metadata: { price: [1, Number.NaN] } }), { name: "InvalidInput", field: "metadata.price.1" });
  await assert.rejects(memory.search(" "), { name: "InvalidInput", field: "query" });
  await assert.rejects(memory.search("x", { where: { ticket: { near: 1 } } }), { name: "InvalidInput", field: "where.ticket" });
  for (const [call, field] of [
    [() => memory.add(""), "content"],
    [() => memory.add([]), "content"],
    [() => memory.add("\ud800"), "content"],
    [() => memory.add("x", { tags: "health" }), "tags"],
    [() => memory.add("x", { tags: [""] }), "tags.0"],
    [() => memory.add("x", { metadata: { and: 1 } }), "metadata.and"],
    [() => memory.add("x", { metadata: { price: 10n } }), "metadata.price"],
    [() => memory.add("x", { session: 5 }), "session"],
    [() => memory.add("x", { occurredAt: "2020-01-01" }), "occurredAt"],
    [() => memory.add("x", { timeout: 0 }), "timeout"],
    [() => memory.addMany("abc"), "texts"],
    [() => memory.addMany(["x", " "]), "texts[1]"],
    [() => memory.search("x", { limit: 0 }), "limit"],
    [() => memory.search("x", { minScore: 2 }), "minScore"],
    [() => memory.recall(5), "message"],
    [() => memory.changes("x"), "cursor"],
    [() => memory.profile({ maxTokens: 0 }), "maxTokens"],
    [() => memory.import([{}]), "exported[0].text"],
    [() => memory.import(5), "exported"],
    [() => memory.update(added.id), "changes"],
    [() => memory.update(added.id, { text: "" }), "text"],
  ]) {
    await assert.rejects(async () => call(), { name: "InvalidInput", field });
  }
  assert.throws(() => opened({ user: " " }), { name: "InvalidInput", field: "user" });
  assert.throws(() => opened({ url: "http://example.com" }), { name: "SettingsError" });
});

test("users and accounts are apart", { skip }, async () => {
  const secret = randomBytes(32).toString("hex");
  const memory = opened({ secret });
  await memory.add("My sister is called Maria.", { user: "ana" });
  assert.deepEqual(await memory.search("What is my sister called?", { user: "bob" }), []);
  assert.deepEqual(await memory.search("What is my sister called?"), []);
  assert.equal((await memory.search("What is my sister called?", { user: "ana" })).length, 1);
  assert.deepEqual(await opened({ user: "ana" }).search("What is my sister called?"), []);
});

test("times are kept, and a wrong clock is corrected once", { skip }, async (context) => {
  const memory = opened();
  const occurredAt = new Date("2023-05-08T10:00:00.123Z");
  const { id } = await memory.add("I ran a marathon.", { occurredAt });
  assert.deepEqual((await memory.get(id)).occurredAt, occurredAt);
  await assert.rejects(memory.add("x", { occurredAt: new Date("?") }), { name: "InvalidInput", field: "occurredAt" });
  const now = Date.now.bind(Date);
  for (const hours of [-5, 5]) {
    context.mock.method(Date, "now", () => now() + hours * 3_600_000);
    assert.equal((await opened().add("I ran a marathon.")).status, "stored");
    context.mock.restoreAll();
  }
});

test("another identity gets no key, and a changed response is discarded", { skip }, async () => {
  const trust = new MemoryTrustStore();
  await trust.pinFirst(new URL(url).origin, new Uint8Array(32));
  await assert.rejects(opened({ trust }).search("peanuts"), { name: "RelayerUntrusted" });
  const seen = [];
  const proxy = createServer(async (request, response) => {
    const chunks = await collected(request);
    const headers = { ...request.headers, host: new URL(url).host };
    delete headers.connection;
    seen.push({ path: request.url, body: Buffer.concat(chunks) });
    const upstream = await fetch(url + request.url, { method: request.method, headers: request.url === "/v1/keys" ? {} : headers, ...(chunks.length ? { body: Buffer.concat(chunks) } : {}) });
    response.writeHead(upstream.status, { "content-type": "application/json", "memory-proof": upstream.headers.get("memory-proof") ?? "" });
    const text = await upstream.text();
    response.end(request.url === "/v1/keys" ? text : `${text} `);
  });
  await new Promise((resolve) => proxy.listen(0, "127.0.0.1", resolve));
  try {
    const memory = opened({ url: `http://127.0.0.1:${proxy.address().port}` });
    await assert.rejects(memory.search("a text about peanuts"), { name: "RelayerUntrusted" });
    assert.ok(seen.every(({ body }) => !body.includes("peanuts")), "bodies are sealed over http");
  } finally {
    proxy.closeAllConnections();
    proxy.close();
  }
});

test("a relayer that is away or silent ends in a named error within the deadline", async () => {
  const away = new Memory({ url: "http://127.0.0.1:9", secret: "00".repeat(32), trust: new MemoryTrustStore() });
  await assert.rejects(away.search("peanuts", { timeout: 5 }), { name: "RelayerUnreachable" });
  const silent = createServer(() => undefined);
  await new Promise((resolve) => silent.listen(0, "127.0.0.1", resolve));
  try {
    const memory = new Memory({ url: `http://127.0.0.1:${silent.address().port}`, secret: "00".repeat(32), trust: new MemoryTrustStore() });
    const began = Date.now();
    await assert.rejects(memory.search("peanuts", { timeout: 0.3 }), { name: "DeadlineExceeded" });
    assert.ok(Date.now() - began < 2000);
  } finally {
    silent.closeAllConnections();
    silent.close();
  }
});

const usage = { inputTokens: { total: 1 }, outputTokens: { total: 1 } };
const stop = { unified: "stop", raw: "stop" };
const model = (answer = "I see.") =>
  new MockLanguageModelV3({
    doGenerate: async () => ({ content: [{ type: "text", text: answer }], finishReason: stop, usage, warnings: [] }),
    doStream: async () => ({
      stream: convertArrayToReadableStream([
        { type: "stream-start", warnings: [] },
        { type: "text-start", id: "1" },
        { type: "text-delta", id: "1", delta: answer },
        { type: "text-end", id: "1" },
        { type: "finish", finishReason: stop, usage },
      ]),
    }),
  });
const prompted = (mock) => JSON.stringify((mock.doGenerateCalls.at(-1) ?? mock.doStreamCalls.at(-1)).prompt);
const as = (user) => ({ providerOptions: { memrelay: { user } } });

test("the middleware recalls into the prompt, and captures after the answer", { skip }, async () => {
  const memory = opened();
  const errors = [];
  const middleware = memoryMiddleware({ memory, minScore: 0, timeout: 20, onError: (error) => errors.push(error) });
  const speak = async (prompt, user) => {
    const mock = model();
    await generateText({ model: wrapLanguageModel({ model: mock, middleware }), prompt, ...as(user) });
    await middleware.flush();
    return prompted(mock);
  };
  assert.ok(!(await speak("I am allergic to peanuts.", "ana")).includes("relevant-memories"));
  assert.match(await speak("Am I allergic to peanuts?", "ana"), /relevant-memories.*allergic to peanuts\..*Am I allergic/);
  assert.ok(!(await speak("Am I allergic to peanuts?", "bob")).includes("allergic to peanuts."));
  const mock = model();
  const { textStream } = streamText({ model: wrapLanguageModel({ model: mock, middleware }), prompt: "My sister Maria lives in Porto.", ...as("ana") });
  assert.equal((await collected(textStream)).join(""), "I see.");
  await middleware.flush();
  assert.ok((await memory.search("Where does Maria live?", { user: "ana" })).some((one) => one.text.includes("Porto")));
  assert.ok((await collected(memory.list({ user: "ana" }))).every((one) => !one.text.includes("relevant-memories")));
  assert.deepEqual(errors, []);
});

test("the middleware puts into each prompt what could harm, and works with long messages", { skip }, async () => {
  const memory = opened({ user: "ana" });
  const errors = [];
  const middleware = memoryMiddleware({ memory, timeout: 20, onError: (error) => errors.push(error) });
  const speak = async (prompt) => {
    const mock = model();
    await generateText({ model: wrapLanguageModel({ model: mock, middleware }), prompt });
    await middleware.flush();
    return prompted(mock);
  };
  await speak(`I'm allergic to peanuts. ${"log line\n".repeat(9000)}`);
  assert.ok((await collected(memory.list())).some((one) => one.text.includes("allergic to peanuts")));
  await memory.add("I'm allergic to <b>nuts</b>.");
  assert.match(await speak("Plan dinner for my birthday."), /<relevant-memories>.*allergic to &lt;b&gt;nuts.*<\/relevant-memories>.*Plan dinner/);
  assert.equal((await memory.recall("Plan dinner for my birthday.")).match(/allergic to &lt;b&gt;nuts/g).length, 1);
  assert.equal(await memory.recall(" "), "");
  assert.match(await memory.recall(`${"\u{1f95c}".repeat(40_000)} dinner`), /allergic/);
  assert.deepEqual(errors, []);
});

test("the middleware never breaks a call", async () => {
  const memory = new Memory({ url: "http://127.0.0.1:9", secret: "00".repeat(32), trust: new MemoryTrustStore(), timeout: 1 });
  const errors = [];
  const middleware = memoryMiddleware({ memory, timeout: 0.5, onError: (error) => (errors.push(error.name), assert.fail("a handler that fails")) });
  const wrapped = wrapLanguageModel({ model: model("Fine."), middleware });
  assert.equal((await generateText({ model: wrapped, prompt: "How are you?" })).text, "Fine.");
  assert.equal((await collected(streamText({ model: wrapped, prompt: "How are you?" }).textStream)).join(""), "Fine.");
  await generateText({ model: wrapped, prompt: "How are you?", ...as(7) });
  await middleware.flush();
  assert.deepEqual([...new Set(errors)].sort(), ["RelayerUnreachable", "TypeError"]);
});

test("the types are those of the relayer's OpenAPI document", { skip }, async () => {
  const input = await (await fetch(`${url}/openapi.json`)).text();
  const made = execFileSync(process.execPath, [new URL("../scripts/types.mjs", import.meta.url).pathname], { input, encoding: "utf8" });
  assert.equal(made, readFileSync(new URL("../src/api.ts", import.meta.url), "utf8"));
});
