// What vectors.test.mjs takes from Node.js, for a browser.
const shown = (value) => JSON.stringify(value);
const fails = (wrong) => {
  throw new Error(wrong);
};

function assert(value, message = "is false") {
  if (!value) fails(message);
}

/** Check an error as Node.js does: by its class, by a function, or by the fields of an object. */
function matches(error, expected) {
  if (expected === undefined || typeof expected === "string") return true;
  if (typeof expected !== "function") return Object.entries(expected).every(([name, value]) => error[name] === value);
  return expected.prototype instanceof Error ? error instanceof expected : expected(error);
}

export default Object.assign(assert, {
  ok: assert,
  equal: (a, b) => assert(Object.is(a, b), `${shown(a)} is not ${shown(b)}`),
  deepEqual: (a, b) => assert(shown(a) === shown(b), `${shown(a)} is not ${shown(b)}`),
  throws(work, expected, message) {
    try {
      work();
    } catch (error) {
      return assert(matches(error, expected), `another error: ${error}`);
    }
    fails(`nothing was thrown: ${message ?? ""}`);
  },
  async rejects(promise, expected, message) {
    const error = await promise.then(() => undefined, (reason) => reason);
    assert(error !== undefined, `nothing was thrown: ${message ?? ""}`);
    assert(matches(error, expected), `another error: ${error}`);
  },
});

export function readFileSync(url) {
  const request = new XMLHttpRequest();
  request.open("GET", url, false);
  request.send();
  return request.responseText;
}

const tests = [];
export const test = (name, work) => tests.push([name, work]);

/** Run the tests of the vectors, and return for each its error, or null. */
export async function run() {
  await import("../vectors.test.mjs");
  const results = {};
  for (const [name, work] of tests) results[name] = await Promise.resolve().then(work).then(() => null, String);
  return results;
}
