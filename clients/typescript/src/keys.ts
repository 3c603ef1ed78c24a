/** Keys and names: everything is derived from one secret, see "Keys" in docs/format.md and "Certificate" in docs/protocol.md. */

import { ed25519 } from "@noble/curves/ed25519.js";
import { blake2b } from "@noble/hashes/blake2.js";
import { hkdf } from "@noble/hashes/hkdf.js";
import { sha256, sha512 } from "@noble/hashes/sha2.js";
import { type Bytes, type Field, base64url, concat, fromHex, hex, lp, Malformed, utf8 } from "./bytes.js";
import { IdentityError, InvalidInput } from "./errors.js";

export const GENERATION = 1;
const DAY = 24 * 3600;

/** Return HKDF-SHA512 with the fields of a label as `info`. */
export function derive(secret: Uint8Array, label: readonly Field[], { length = 32, salt = new Uint8Array(0) } = {}): Bytes {
  return hkdf(sha512, secret, salt, lp(...label), length) as Bytes;
}

/** Parse 32 bytes given as 64 hexadecimal digits or base64. The error never shows the value. */
export function parseSecret(text: string, source = "the secret"): Bytes {
  const cleaned = text.trim();
  try {
    if (/^[0-9a-fA-F]{64}$/.test(cleaned)) return fromHex(cleaned);
    const standard = cleaned.replaceAll("-", "+").replaceAll("_", "/").replace(/=+$/, "");
    if (!/^[A-Za-z0-9+/]{43}$/.test(standard)) throw new Malformed("not base64");
    return Uint8Array.from(atob(standard), (char) => char.charCodeAt(0));
  } catch {
    throw new IdentityError(`${source} must be 32 bytes: 64 hex digits or base64`);
  }
}

export function accountId(publicKey: Uint8Array): string {
  return `0x${hex(blake2b(concat(new Uint8Array(1), publicKey), { dkLen: 32 }))}`;
}

/** The keys of one agent. */
export class AgentKeys {
  readonly publicKey: Bytes;
  readonly #identity: Bytes;
  readonly #secret: Bytes;
  constructor(readonly agent: string, secret: Bytes) {
    this.#secret = secret;
    this.#identity = derive(secret, ["identity"]);
    this.publicKey = ed25519.getPublicKey(this.#identity) as Bytes;
  }
  sign(message: Uint8Array): Bytes {
    return ed25519.sign(message, this.#identity) as Bytes;
  }
  namespaceSecret(namespace: string, generation = GENERATION): Bytes {
    return derive(this.#secret, ["namespace", namespace, generation]);
  }
}

export interface CertificateFields {
  agent: string;
  agentKey: Uint8Array;
  namespaces: readonly string[];
  rights: readonly string[];
  notBefore: number;
  notAfter: number;
  serial: Uint8Array;
}

/** All keys of one account. */
export class RootKeys {
  readonly publicKey: Bytes;
  readonly account: string;
  readonly #root: Bytes;
  readonly #identity: Bytes;
  constructor(root: Bytes) {
    this.#root = root;
    this.#identity = derive(root, ["memrelay/v1/account"]);
    this.publicKey = ed25519.getPublicKey(this.#identity) as Bytes;
    this.account = accountId(this.publicKey);
  }
  agent(agent: string): AgentKeys {
    return new AgentKeys(agent, derive(this.#root, ["memrelay/v1/agent", agent]));
  }
  sharedSecret(scope: string, generation = GENERATION): Bytes {
    return derive(this.#root, ["memrelay/v1/shared", scope, generation]);
  }
  certificate(fields: CertificateFields): Bytes {
    const { agent, agentKey, namespaces, rights, notBefore, notAfter, serial } = fields;
    const body = lp("memrelay/v1/certificate", this.publicKey, agent, agentKey, namespaces, rights, notBefore, notAfter, serial);
    return lp(body, ed25519.sign(body, this.#identity));
  }
}

const OWNER = "memrelay-owner";

/** Returns the keys and certificates for one agent's namespaces: those of the agent, or of the account's owner for erasures. */
export class Signer {
  readonly keys: AgentKeys;
  readonly #agent: AgentKeys;
  #certificate = "";
  #from = 0;
  #until = 0;
  constructor(private readonly root: RootKeys, agent: string, private readonly isOwner = false) {
    this.#agent = root.agent(agent);
    this.keys = isOwner ? root.agent(OWNER) : this.#agent;
  }
  get account(): string {
    return this.root.account;
  }
  namespaceSecret(namespace: string, generation = GENERATION): Bytes {
    return this.#agent.namespaceSecret(namespace, generation);
  }
  /** Return the `memory-certificate` header. An agent's is used until an hour before its end, an owner's once. */
  certificate(now: number): string {
    if (now < this.#from || now >= this.#until) {
      const whose = this.#agent.agent;
      this.#from = Math.max(now - 300, 0);
      this.#until = this.isOwner ? 0 : now + DAY - 3600;
      this.#certificate = base64url(
        this.root.certificate({
          agent: this.keys.agent,
          agentKey: this.keys.publicKey,
          namespaces: [whose, `${whose}/*`],
          rights: this.isOwner ? ["read", "write", "admin"] : ["read", "write"],
          notBefore: this.#from,
          notAfter: now + (this.isOwner ? 600 : DAY),
          serial: crypto.getRandomValues(new Uint8Array(16)),
        }),
      );
    }
    return this.#certificate;
  }
}

const MAX_NAME = 64;
const NAMES = 4;
const HASHED = /^_h_[a-z0-9-]{0,32}_[0-9a-f]{64}$/;

export function isNormal(name: string): boolean {
  return /^[a-z0-9_-]{1,64}$/.test(name) || HASHED.test(name);
}

function hashed(folded: string): string {
  const slug = folded.replace(/[^a-z0-9]+/g, "-").replace(/^-+|-+$/g, "").slice(0, 32);
  return `_h_${slug}_${hex(sha256(utf8(folded)))}`;
}

// The characters that the protocol trims: `trim` of JavaScript also removes U+FEFF, and leaves U+001C to U+001F and U+0085.
const SPACE = "[\\t-\\r\\x1c-\\x20\\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000]+";
const AROUND = new RegExp(`^${SPACE}|${SPACE}$`, "g");

/** Return the normal form of a name: NFKC, trimmed, lower case, and hashed if it has other characters or is long. */
export function normalise(name: string): string {
  if ([...name].length > 1024) throw new IdentityError("a name has at most 1,024 characters");
  const folded = name.normalize("NFKC").replace(AROUND, "").toLowerCase().normalize("NFKC");
  if (!folded) throw new IdentityError("a name must not be empty");
  try {
    return /^[a-z0-9_-]{1,64}$/.test(folded) ? folded : hashed(folded);
  } catch {
    throw new IdentityError("a name must be valid Unicode: it contains a lone surrogate");
  }
}

/** Return the normal name of an agent. `main` is the default agent, and an agent called `default` is another one. */
export function agentName(agent?: string): string {
  if (agent === undefined) return "default";
  if (HASHED.test(agent.replace(AROUND, "").toLowerCase())) {
    throw new IdentityError("a name that begins with _h_ and ends with a digest represents another agent's name");
  }
  const normal = normalise(agent);
  if (normal === "main") return "default";
  if (normal === OWNER) throw new IdentityError(`${OWNER} is reserved for the owner of the account`);
  return normal === "default" ? hashed(normal) : normal;
}

const BASE32HEX = "0123456789abcdefghijklmnopqrstuv";

function base32hex(bytes: Uint8Array): string {
  const bits = Array.from(bytes, (byte) => byte.toString(2).padStart(8, "0")).join("");
  return (bits.match(/.{1,5}/g) ?? []).map((five) => BASE32HEX[parseInt(five.padEnd(5, "0"), 2)]).join("");
}

function fromBase32hex(text: string): Bytes {
  const bits = Array.from(text, (char) => BASE32HEX.indexOf(char).toString(2).padStart(5, "0")).join("");
  return Uint8Array.from(bits.match(/.{8}/g) ?? [], (eight) => parseInt(eight, 2));
}

/** Return the namespace of an agent, or of one of its users. Two users never have the same. */
export function userNamespace(agent: string, user?: string): string {
  if (user === undefined) return agent;
  if (typeof user !== "string" || !user.replace(AROUND, "")) {
    throw new InvalidInput("user", "must be a name with at least one visible character");
  }
  const plain = `sender-${user}`;
  if (plain.length <= MAX_NAME && isNormal(plain)) return `${agent}/${plain}`;
  let whole: string;
  try {
    whole = `user-${base32hex(utf8(user))}`;
  } catch {
    throw new InvalidInput("user", "must be valid Unicode: it contains a lone surrogate");
  }
  const parts = whole.match(/.{1,64}/g)!;
  if (parts.length >= NAMES) throw new InvalidInput("user", "is too long: at most 116 bytes of UTF-8");
  return [agent, ...parts].join("/");
}

/** Return the user whose namespace this is; undefined if it is none of this agent's users. */
export function userOf(agent: string, namespace: string): string | undefined {
  if (!namespace.startsWith(`${agent}/`)) return undefined;
  const parts = namespace.slice(agent.length + 1).split("/");
  if (parts.length === 1 && parts[0]!.startsWith("sender-")) return parts[0]!.slice("sender-".length);
  const whole = parts.join("");
  if (!/^user-[0-9a-v]+$/.test(whole)) return undefined;
  try {
    const user = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(fromBase32hex(whole.slice("user-".length)));
    return userNamespace(agent, user) === namespace ? user : undefined;
  } catch {
    return undefined;
  }
}

