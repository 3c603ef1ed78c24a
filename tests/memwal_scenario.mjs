// Run with MemWal's own TypeScript client: calls everything that its first version has, and prints what came of it.
// The first argument is the client's module, so that this file can stand here and the client in a cache.
import { pathToFileURL } from "node:url";

const [client, serverUrl, key, accountId] = process.argv.slice(2);
const { MemWal } = await import(pathToFileURL(client));
const told = {};
const reached = new Set();
const really = globalThis.fetch;
globalThis.fetch = (url, ...rest) => {
  reached.add(new URL(url).origin);
  return really(url, ...rest);
};
const memwal = MemWal.create({ key, accountId, serverUrl });
told.health = await memwal.health();
told.remembered = await memwal.remember("I am allergic to peanuts.");
told.recalled = await memwal.recall("What am I allergic to?");
told.elsewhere = await memwal.recall("What am I allergic to?", 5, "elsewhere");
told.analyzed = await memwal.analyze("We moved to Porto for the new job.");
told.embedded = (await memwal.embed("a text")).vector.length;
told.manual = await memwal.rememberManual({ blobId: "kept-on-walrus", vector: [0.6, 0.8] });
told.found = await memwal.recallManual({ vector: [0.6, 0.8] });
told.restored = await memwal.restore("default");
try {
  await MemWal.create({ key: "22".repeat(32), accountId, serverUrl }).recall("allergic");
} catch (error) {
  told.intruder = String(error);
}
told.reached = [...reached];
console.log(JSON.stringify(told));
