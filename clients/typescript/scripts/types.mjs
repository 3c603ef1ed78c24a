// Write src/api.ts, the types of requests and responses, from the OpenAPI document of a relayer.
//   curl -s http://127.0.0.1:8787/openapi.json | node scripts/types.mjs > src/api.ts

const named = (reference) => reference.split("/").at(-1).replace(/[^A-Za-z0-9]/g, "_");
const joined = (schemas, by) => [...new Set(schemas.map(typed))].join(by);

function typed(schema) {
  if (schema === true || schema === undefined) return "unknown";
  if (schema.$ref) return named(schema.$ref);
  if ("const" in schema) return JSON.stringify(schema.const);
  if (schema.enum) return schema.enum.map((value) => JSON.stringify(value)).join(" | ");
  if (schema.anyOf ?? schema.oneOf) return joined(schema.anyOf ?? schema.oneOf, " | ");
  if (schema.allOf) return joined(schema.allOf, " & ");
  if (Array.isArray(schema.type)) return joined(schema.type.map((type) => ({ ...schema, type })), " | ");
  switch (schema.type) {
    case "string":
      return "string";
    case "integer":
    case "number":
      return "number";
    case "boolean":
      return "boolean";
    case "null":
      return "null";
    case "array":
      if (schema.prefixItems) return `[${schema.prefixItems.map(typed).join(", ")}]`;
      return `(${typed(schema.items)})[]`;
    case "object":
      if (schema.properties) return `{ ${fields(schema).join(" ")} }`;
      return `Record<string, ${typed(schema.additionalProperties)}>`;
    default:
      return "unknown";
  }
}

function fields(schema) {
  const required = new Set(schema.required ?? []);
  const one = ([name, value]) => `${JSON.stringify(name)}${required.has(name) ? "" : "?"}: ${typed(value)};`;
  return Object.entries(schema.properties ?? {}).map(one);
}

let text = "";
for await (const chunk of process.stdin) text += chunk;
const { schemas } = JSON.parse(text).components;
console.log("// Made by scripts/types.mjs from the OpenAPI document of the relayer. Do not edit.");
const written = Object.fromEntries(Object.entries(schemas).map(([name, schema]) => [name, fields(schema)]));
// An interface that begins with all fields of another one extends it.
const baseOf = (name) =>
  Object.keys(written).find((other) => {
    const { length } = written[other];
    return length > 3 && length < written[name].length && written[other].every((field, at) => field === written[name][at]);
  });
for (const name of Object.keys(schemas).sort()) {
  const base = baseOf(name);
  const own = written[name].slice(base ? written[base].length : 0);
  if (schemas[name].properties) console.log(`\nexport interface ${named(name)}${base ? ` extends ${named(base)}` : ""} {\n  ${own.join("\n  ")}\n}`);
  else console.log(`\nexport type ${named(name)} = ${typed(schemas[name])};`);
}
