// The frozen vectors of tests/vectors, as far as they concern a client.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { base64url, fromBase64url, fromHex, hex, lp } from "../dist/bytes.js";
import { IdentityError } from "../dist/errors.js";
import { derive, isNormal, normalise, parseSecret, RootKeys } from "../dist/keys.js";
import * as signing from "../dist/signing.js";

const vectors = (name) => JSON.parse(readFileSync(new URL(`../../../tests/vectors/${name}.json`, import.meta.url)));
const field = (value) => (Array.isArray(value) ? value.map(field) : value?.hex !== undefined ? fromHex(value.hex) : value);
const number = (bytes) => Number(Buffer.from(bytes).readBigUInt64BE());
// The fields of one lp value.
const fieldsOf = (data, found = []) => {
  if (!data.length) return found;
  const end = 8 + number(data);
  return fieldsOf(data.slice(end), [...found, data.slice(8, end)]);
};
const derivation = vectors("derivation");
const root = new RootKeys(fromHex(derivation.root));

test("keys are derived as the vectors say", () => {
  assert.equal(hex(root.publicKey), derivation.account_public_key);
  assert.equal(root.account, derivation.account);
  for (const one of derivation.agents) {
    const keys = root.agent(one.agent);
    assert.equal(hex(keys.publicKey), one.public_key);
    for (const { namespace, generation, secret } of one.namespace_secrets) assert.equal(hex(keys.namespaceSecret(namespace, generation)), secret);
  }
  for (const { scope, generation, secret } of derivation.shared) assert.equal(hex(root.sharedSecret(scope, generation)), secret);
  const { secret, label, salt, okm } = derivation.hkdf;
  assert.equal(hex(derive(fromHex(secret), label, { length: okm.length / 2, salt: fromHex(salt) })), okm);
});

test("fields are encoded as the vectors say", () => {
  for (const { fields, encoded } of derivation.lp) {
    if (fields.flat(9).some((one) => typeof one === "number" && !Number.isSafeInteger(one))) continue;
    assert.equal(hex(lp(...field(fields))), encoded);
  }
});

test("malformed secrets are refused without being shown", () => {
  for (const text of derivation.malformed_secrets) {
    assert.throws(() => parseSecret(text), (error) => error instanceof IdentityError && (text.length < 5 || !error.message.includes(text)));
  }
});

test("names have their normal form", () => {
  const names = vectors("names");
  for (const { given, normal } of names.normal) assert.equal(normalise(given), normal);
  for (const name of names.invalid) assert.throws(() => normalise(name), IdentityError);
  assert.ok(isNormal("researcher"));
});

test("a certificate has the bytes of the vectors", () => {
  for (const one of vectors("certificates").verifies) {
    const [, , , agentKey, , , from, until, serial] = fieldsOf(fieldsOf(fromHex(one.encoded))[0]);
    const [notBefore, notAfter] = [number(from), number(until)];
    const made = root.certificate({ agent: one.agent, agentKey, namespaces: one.namespaces, rights: one.rights, notBefore, notAfter, serial });
    assert.equal(hex(made), one.encoded);
  }
});

test("a request is signed with the bytes of the vectors", () => {
  const { request, header, created, authorities, digests } = vectors("signatures");
  const nonce = fromBase64url(header).slice(16, 32);
  const signer = root.agent("researcher");
  assert.equal(hex(signer.publicKey), request.agent_key);
  const { method, authority, target, certificate, memory_key: memoryKey } = request;
  const made = signing.signRequest((message) => signer.sign(message), { method, authority, target, body: fromHex(request.body), created, nonce, certificate, memoryKey });
  assert.equal(made, header);
  for (const one of authorities) assert.equal(signing.normalAuthority(one.host, one.scheme), one.authority);
  assert.equal(signing.contentDigest(new Uint8Array()), digests.good);
});

test("a sealed key opens, and carries what the vectors say", () => {
  const vector = vectors("sealed_keys");
  const secretKey = fromHex(vector.fleet_private_key);
  for (const one of vector.opens) {
    const sealed = fromHex(one.sealed);
    const plain = signing.openSealedBox(secretKey, sealed.slice(8));
    const fields = { account: one.account, agentKey: fromHex(one.agent_key), namespace: one.namespace, generation: one.generation, secret: fromHex(one.secret), notAfter: one.not_after };
    const expected = lp(1, fields.account, fields.agentKey, fields.namespace, fields.generation, fields.secret, fields.notAfter);
    assert.equal(hex(plain), hex(expected));
  }
  for (const { key, why } of vector.unusable_fleet_keys) {
    const fields = { account: "0x", agentKey: new Uint8Array(32), namespace: "a", generation: 1, secret: new Uint8Array(32), notAfter: 1 };
    assert.throws(() => signing.sealKey(fromHex(key), fields), why);
  }
});

test("bodies are sealed with the bytes of the vectors", () => {
  const { opens } = vectors("sealed_bodies");
  for (const { secret, nonce, sealed, body } of opens) {
    assert.equal(hex(signing.sealBody(fromHex(secret), fromHex(nonce), fromHex(body))), sealed);
  }
});

test("lists of fleet keys are verified", () => {
  const encoded = (bytes) => base64url(fromHex(bytes));
  const parse = (one) => {
    const keys = one.keys.map((key) => ({ ...key, public_key: encoded(key.public_key) }));
    return signing.parseFleetList({ ...one, identity: encoded(one.identity), signature: encoded(one.signature), keys }, one.now);
  };
  const { verifies, refused } = vectors("fleet_list");
  for (const one of verifies) assert.equal(hex(parse(one).identity), one.identity);
  for (const one of refused) assert.throws(() => parse(one), { name: "RelayerUntrusted" }, one.why);
});

const proofs = vectors("proofs");
const verifier = (one) => {
  const { signature, method, target, digest, content_type: contentType } = one;
  return new signing.Verifier({ signature, method, target, digest, contentType }, fromHex(one.identity), fromHex(one.key));
};

test("responses are proven as the vectors say", () => {
  for (const { secret, answer_key } of proofs.keys) assert.equal(hex(signing.answerKey(fromHex(secret))), answer_key);
  for (const one of proofs.proves) assert.equal(verifier(one).check(one.proof, one.status, fromHex(one.body)), true);
  for (const one of proofs.proves_refusals) assert.equal(verifier(one).check(one.proof, one.status, fromHex(one.body)), false);
  for (const one of proofs.refused) assert.throws(() => verifier(one).check(one.proof, one.status, fromHex(one.body)), signing.Unproven, one.why);
});

const readLines = async (one, size) => {
  const body = fromHex(one.body);
  async function* chunks() {
    for (let at = 0; at < body.length; at += size) yield body.subarray(at, at + size);
  }
  const lines = [];
  for await (const line of verifier(one).lines(chunks())) lines.push(line);
  return lines;
};

test("streams are proven line by line", async () => {
  const { streams, refused_streams: refused } = proofs;
  for (const size of [1, 7, 4096]) {
    for (const one of streams) assert.deepEqual(await readLines(one, size), one.lines);
    for (const one of refused) await assert.rejects(readLines(one, size), undefined, one.why);
  }
});
