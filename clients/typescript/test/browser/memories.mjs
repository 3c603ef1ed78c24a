// A page that uses a relayer of another origin with the client's defaults.
import { Memory } from "memrelay";

export async function run(query) {
  const url = query.get("relayer");
  const known = Object.keys(localStorage);
  if (query.has("pin")) localStorage.setItem(`memrelay:${url}`, query.get("pin"));
  const memory = new Memory({ url, secret: query.get("secret"), agent: "support", user: "Ana Õ", timeout: 20 });
  const added = await memory.add("I am allergic to peanuts.", { tags: ["health"], metadata: { ticket: 4711 } });
  const [hit] = await memory.search("What must I not cook with peanuts?", { where: { ticket: { gte: 4000 } } });
  const updated = await memory.update(added.id, { text: "I am allergic to peanuts and soy." });
  const texts = [];
  for await (const one of memory.export()) texts.push(one.text);
  await memory.delete(updated.id);
  const left = await memory.search("What must I not cook with peanuts?");
  const refused = await memory.get(added.id.replace(/^..../, "0000")).catch((error) => `${error.name} ${error.code}`);
  return { added: added.status, found: [hit.id === added.id, hit.text, hit.tags, hit.metadata], texts, left: left.length, refused, known, pinned: Object.keys(localStorage) };
}
