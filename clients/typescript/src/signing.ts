/** What is signed, sealed and proven on the wire. The sections of docs/protocol.md have the same names as the functions. */

import { gcm } from "@noble/ciphers/aes.js";
import { xsalsa20poly1305 } from "@noble/ciphers/salsa.js";
import { hsalsa } from "@noble/ciphers/salsa.js";
import { ed25519, x25519 } from "@noble/curves/ed25519.js";
import { blake2b } from "@noble/hashes/blake2.js";
import { hmac } from "@noble/hashes/hmac.js";
import { sha256 } from "@noble/hashes/sha2.js";
import type { KeysResponse } from "./api.js";
import { type Bytes, base64, base64url, concat, equal, fromBase64url, lp, u64, utf8 } from "./bytes.js";
import { RelayerUntrusted } from "./errors.js";
import { derive } from "./keys.js";

export const SEALED_TYPE = "application/memrelay-sealed";
const WINDOW = 120;
const DAY = 24 * 3600;
const MAX_LINES = 16 * 1024 * 1024;
const ZERO_NONCE = new Uint8Array(12);

export function verifyEd25519(signature: Uint8Array, message: Uint8Array, publicKey: Uint8Array): boolean {
  try {
    return ed25519.verify(signature, message, publicKey, { zip215: false });
  } catch {
    return false;
  }
}

export interface RequestToSign {
  method: string;
  authority: string;
  target: string;
  body: Uint8Array;
  created: number;
  nonce: Uint8Array;
  certificate: string;
  memoryKey: string;
}

/** Return the `memory-signature` header. */
export function signRequest(sign: (message: Uint8Array) => Uint8Array, request: RequestToSign): string {
  const { method, authority, target, body, created, nonce, certificate, memoryKey } = request;
  const expires = created + WINDOW;
  const digests = [sha256(utf8(certificate)), sha256(utf8(memoryKey))];
  const message = lp("memrelay/v1/request", method, authority, target, sha256(body), created, expires, nonce, ...digests);
  return base64url(concat(u64(created), u64(expires), nonce, sign(message)));
}

export function contentDigest(body: Uint8Array): string {
  return `sha-256=:${base64(sha256(body))}:`;
}

/** Return the authority in the form that is signed: lower case, no trailing dot, no default port. */
export function normalAuthority(host: string, scheme: string): string {
  const text = host.trim().toLowerCase();
  const [, name, port] = /^(.*[^:]):([0-9]+)$/s.exec(text) ?? [];
  if (name === undefined) return text.replace(/\.+$/, "");
  const isDefault = port === (scheme === "https" ? "443" : "80");
  return name.replace(/\.+$/, "") + (isDefault ? "" : `:${port}`);
}

export interface SealedKeyFields {
  account: string;
  agentKey: Uint8Array;
  namespace: string;
  generation: number;
  secret: Uint8Array;
  notAfter: number;
}

/** Seal a namespace's secret to a fleet key: the bytes of the `memory-key` header. */
export function sealKey(fleetKey: Uint8Array, key: SealedKeyFields): Bytes {
  const plain = lp(1, key.account, key.agentKey, key.namespace, key.generation, key.secret, key.notAfter);
  return concat(sha256(fleetKey).subarray(0, 8), sealedBox(fleetKey, plain));
}

// NaCl's sealed box (crypto_box_seal): an ephemeral X25519 key, HSalsa20 of the shared point, and XSalsa20-Poly1305 under a
// nonce that is the BLAKE2b-192 of both public keys.
function sealedBox(publicKey: Uint8Array, plain: Uint8Array): Bytes {
  const ephemeral = x25519.utils.randomSecretKey();
  const own = x25519.getPublicKey(ephemeral);
  let shared: Uint8Array;
  try {
    shared = x25519.getSharedSecret(ephemeral, publicKey);
  } catch {
    throw new RelayerUntrusted("the relayer is not trusted: its fleet key is not a usable public key");
  }
  return concat(own, xsalsa20poly1305(boxKey(shared), blake2b(concat(own, publicKey), { dkLen: 24 })).encrypt(plain));
}

/** Open a sealed box; used by tests of the frozen vectors. */
export function openSealedBox(secretKey: Uint8Array, box: Uint8Array): Bytes {
  const other = box.subarray(0, 32);
  const shared = x25519.getSharedSecret(secretKey, other);
  const nonce = blake2b(concat(other, x25519.getPublicKey(secretKey)), { dkLen: 24 });
  return xsalsa20poly1305(boxKey(shared), nonce).decrypt(box.slice(32)) as Bytes;
}

function boxKey(shared: Uint8Array): Bytes {
  const words = (bytes: Uint8Array) => new Uint32Array(bytes.slice().buffer);
  const key = new Uint32Array(8);
  hsalsa(words(utf8("expand 32-byte k")), words(shared), new Uint32Array(4), key);
  return new Uint8Array(key.buffer);
}

/** Seal the body of the request whose signature has this nonce. */
export function sealBody(secret: Uint8Array, nonce: Uint8Array, body: Uint8Array): Bytes {
  return gcm(derive(secret, ["memrelay/v1/body", nonce]), ZERO_NONCE).encrypt(body) as Bytes;
}

export interface FleetKey {
  day: string;
  publicKey: Bytes;
  notAfter: number;
}

export interface FleetList {
  identity: Bytes;
  issuedAt: number;
  keys: FleetKey[];
}

/** Check the signature and the age of a list of fleet keys, without saying whether the identity that signed it is trusted. */
export function parseFleetList(answer: KeysResponse, now: number): FleetList {
  const refuse = (why: string) => new RelayerUntrusted(`the relayer is not trusted: its list of keys ${why}`);
  let list: FleetList;
  try {
    const identity = fromBase64url(answer.identity);
    const keys = answer.keys.slice(0, 16).map((key) => ({ day: key.day, publicKey: fromBase64url(key.public_key), notAfter: key.not_after }));
    const rows = keys.map((key) => lp(key.day, key.publicKey, key.notAfter));
    const message = lp("memrelay/v1/keys", identity, answer.issued_at, rows);
    if (!verifyEd25519(fromBase64url(answer.signature), message, identity)) throw refuse("is not signed by the identity it names");
    list = { identity, issuedAt: answer.issued_at, keys };
  } catch (error) {
    throw error instanceof RelayerUntrusted ? error : refuse("is malformed");
  }
  if (list.issuedAt < now - DAY) throw refuse("is more than a day old; compare the clocks of both machines");
  if (list.issuedAt > now + DAY) throw refuse("is from the future; compare the clocks of both machines");
  return list;
}

export interface AnsweredRequest {
  signature: string;
  method: string;
  target: string;
  digest: string;
  contentType: string;
}

/** A response, or a line of a stream, is not proven to be the relayer's. */
export class Unproven extends Error {}

/** Checks the response to one request, see "Proofs" in docs/protocol.md. */
export class Verifier {
  readonly #request: Uint8Array;

  /**
   * @param request the headers of the request, as they were sent
   * @param identity the pinned identity of the relayer
   * @param answerKey the answer key of the secret that the request carried; empty if it carried none
   */
  constructor(request: AnsweredRequest, private readonly identity: Uint8Array, private readonly answerKey: Uint8Array) {
    const { signature, method, target, digest, contentType } = request;
    this.#request = sha256(lp("memrelay/v1/answered-request", signature, method, target, digest, contentType === SEALED_TYPE ? 1 : 0));
  }

  /** Check a complete response, and return whether the relayer had accepted the request. */
  check(proof: string, status: number, body: Uint8Array): boolean {
    const digest = sha256(body);
    if (this.#proves(proof, lp("memrelay/v1/answer", this.#request, status, digest))) return true;
    if (status >= 300 && this.#proves(proof, lp("memrelay/v1/refusal", this.#request, status, digest))) return false;
    throw new Unproven();
  }

  /** Yield the lines of a stream, each after its proof. */
  async *lines(chunks: AsyncIterable<Uint8Array>): AsyncGenerator<string> {
    const seen = sha256.create();
    const decoder = new TextDecoder("utf-8", { fatal: true });
    let waiting: string[] = [];
    let pieces: Uint8Array[] = [];
    let size = 0;
    for await (const chunk of chunks) {
      let rest = chunk;
      for (let at = rest.indexOf(10); at >= 0; at = rest.indexOf(10)) {
        const line = concat(...pieces, rest.subarray(0, at));
        pieces = [];
        rest = rest.subarray(at + 1);
        const text = decoder.decode(line);
        const proof = /^\{"proof":"([A-Za-z0-9_-]{1,128})"\}$/.exec(text);
        if (proof === null) {
          waiting.push(text);
          size += line.length;
        } else {
          if (!this.#proves(proof[1]!, lp("memrelay/v1/answer-part", this.#request, seen.clone().digest()))) throw new Unproven();
          yield* waiting;
          waiting = [];
          size = 0;
        }
        seen.update(line).update(Uint8Array.of(10));
      }
      pieces.push(rest);
      size += rest.length;
      if (size > MAX_LINES) throw new Unproven();
    }
    if (waiting.length || pieces.some((piece) => piece.length)) throw new Unproven();
  }

  #proves(proof: string, message: Uint8Array): boolean {
    let given: Uint8Array;
    try {
      given = fromBase64url(proof);
    } catch {
      return false;
    }
    if (this.answerKey.length && given.length === 32) return equal(given, hmac(sha256, this.answerKey, message));
    return verifyEd25519(given, message, this.identity);
  }
}

export function answerKey(secret: Uint8Array): Bytes {
  return derive(secret, ["memrelay/v1/answer"]);
}
