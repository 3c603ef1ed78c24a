/** Signed calls to a relayer: one deadline for each call, retries only where they are safe, and verified responses. */

import type { KeysResponse, Problem } from "./api.js";
import { type Bytes, equal, hex, utf8, base64url } from "./bytes.js";
import { DeadlineExceeded, MemrelayError, RelayerRefused, RelayerUnreachable, RelayerUntrusted, SettingsError } from "./errors.js";
import { derive, GENERATION, type Signer } from "./keys.js";
import { answerKey, contentDigest, type FleetList, normalAuthority, parseFleetList, SEALED_TYPE, sealBody, sealKey, signRequest, Unproven, Verifier } from "./signing.js";
import { pageOrigin, type TrustStore } from "./trust.js";

const MAX_ANSWER = 16 * 1024 * 1024;
const KEY_LIFE = 600;
const DAY = 24 * 3600;
const NO_BYTES = new Uint8Array(0);

export interface Call {
  /** What the call does, for messages. */
  name: string;
  method: string;
  target: string;
  signer: Signer;
  namespace: string;
  body?: object;
  /** Whether the sealed key is sent; false for calls about the account. */
  keyed?: boolean;
  /** 1 for calls that must not be repeated. */
  attempts?: number;
  /** The maximum duration in seconds. */
  timeout: number;
}

interface Signed {
  headers: Record<string, string>;
  body: Bytes | undefined;
  verifier: Verifier;
}

interface CallKeys {
  header: string;
  notAfter: number;
  fleetKey: Uint8Array;
  secret: Bytes;
  answerKey: Bytes;
  route: string;
}

/** Check the URL of a relayer: https, or http for this machine. */
export function parseOrigin(url: string): URL {
  const wrong = (problem: string) => new SettingsError(`url: ${problem}; use https://host, or http://127.0.0.1:8787 on this machine`);
  let parsed: URL;
  try {
    parsed = new URL(url.trim());
  } catch {
    throw wrong("is no URL");
  }
  if (!["http:", "https:"].includes(parsed.protocol) || parsed.username || parsed.password) throw wrong("is not the URL of a relayer");
  if (parsed.pathname.replaceAll("/", "") || parsed.search || parsed.hash) throw wrong("has a path; a relayer needs its own host name or port");
  const loopback = /^(localhost|127(\.\d{1,3}){3}|\[::1\])$/.test(parsed.hostname);
  if (parsed.protocol === "http:" && !loopback) throw wrong("would send keys unencrypted; http is only allowed for this machine's loopback address");
  return parsed;
}

/** Thrown inside of a call for a refusal that the call may survive: after a pause, with rotated keys, or with a corrected clock. */
class Curable extends Error {
  constructor(readonly reason: RelayerRefused, readonly cure: { after?: number; generation?: number; offset?: number }) {
    super();
  }
}

export class Client {
  readonly #url: URL;
  readonly #keys = new Map<string, CallKeys>();
  readonly #generations = new Map<string, number>();
  #fleet: Promise<{ list: FleetList; fetchedAt: number }> | undefined;
  #clockOffset = 0;

  /**
   * @param url the URL of the relayer
   * @param trust the pinned identities
   * @param identity the identity that the relayer must have; undefined pins the first one
   */
  constructor(url: string, private readonly trust: TrustStore, private readonly identity?: Uint8Array, private readonly fetch = globalThis.fetch.bind(globalThis)) {
    this.#url = parseOrigin(url);
  }

  /** Make a call and return its JSON response. */
  async call<Answer>(call: Call): Promise<Answer> {
    return this.#within(call, async (signal, left) => {
      let [pause, corrected, refetched] = [0.1, false, false];
      for (let attempt = 1; ; attempt++) {
        const used = this.#generation(call);
        try {
          const { body } = await this.#once(call, signal, left);
          return this.#parsed<Answer>(body);
        } catch (error) {
          const code = error instanceof RelayerRefused ? error.code : "";
          const [reason, { after, generation, offset }] = error instanceof Curable ? [error.reason, error.cure] : [error, {} as Curable["cure"]];
          if (code === "unknown_fleet_key" && !refetched) {
            [refetched, this.#fleet] = [true, undefined];
            attempt -= 1;
            continue;
          }
          if (generation !== undefined && generation > used) {
            // Upwards only: a relayer cannot make a client use a secret again that a rotation has replaced.
            this.#generations.set(place(call), Math.max(generation, this.#generation(call)));
            attempt -= 1;
            continue;
          }
          if (offset !== undefined && !corrected) {
            corrected = true;
            this.#clockOffset = offset;
            attempt -= 1;
            continue;
          }
          const temporary = after !== undefined || error instanceof RelayerUnreachable;
          const wait = Math.max(after ?? 0, pause * (0.5 + Math.random() / 2));
          if (!temporary || attempt >= (call.attempts ?? 3) || wait >= left()) throw reason;
          await new Promise<void>((resolve) => {
            const timer = setTimeout(resolve, wait * 1000);
            signal.addEventListener("abort", () => (clearTimeout(timer), resolve()), { once: true });
          });
          if (signal.aborted) throw reason;
          pause = Math.min(pause * 3, 5);
        }
      }
    });
  }

  /** Make a call and yield the lines of its response, each after its proof. It is not repeated. */
  async *lines(call: Call): AsyncGenerator<string> {
    const controller = new AbortController();
    const end = Date.now() + call.timeout * 1000;
    const timer = setTimeout(() => controller.abort(), call.timeout * 1000);
    try {
      const signed = await this.#signed(call, () => (end - Date.now()) / 1000, controller.signal);
      const response = await this.#sent(call, signed, controller.signal);
      if (response.status >= 300) {
        const body = await this.#read(response);
        throw this.#refusal(response, body, this.#checked(response, body, signed.verifier));
      }
      yield* signed.verifier.lines(chunks(response));
    } catch (error) {
      if (controller.signal.aborted) throw new DeadlineExceeded(call.name);
      if (error instanceof Unproven) throw this.#unproven(200);
      if (error instanceof Curable) throw error.reason;
      throw error instanceof MemrelayError ? error : new RelayerUnreachable(`the connection to ${this.#url.origin} failed`);
    } finally {
      clearTimeout(timer);
      controller.abort();
    }
  }

  async #within<Result>(call: Call, work: (signal: AbortSignal, left: () => number) => Promise<Result>): Promise<Result> {
    const controller = new AbortController();
    const end = Date.now() + call.timeout * 1000;
    let timer: ReturnType<typeof setTimeout> | undefined;
    const late = new Promise<never>((_, reject) => {
      timer = setTimeout(() => (controller.abort(), reject(new DeadlineExceeded(call.name))), call.timeout * 1000);
    });
    try {
      return await Promise.race([work(controller.signal, () => (end - Date.now()) / 1000), late]);
    } finally {
      clearTimeout(timer);
    }
  }

  async #once(call: Call, signal: AbortSignal, left: () => number): Promise<{ body: Bytes }> {
    const signed = await this.#signed(call, left, signal);
    const response = await this.#sent(call, signed, signal);
    const body = await this.#read(response);
    const accepted = this.#checked(response, body, signed.verifier);
    if (response.status >= 300) throw this.#refusal(response, body, accepted);
    return { body };
  }

  async #signed(call: Call, left: () => number, signal: AbortSignal): Promise<Signed> {
    const { list } = await this.#fleetList(signal);
    const now = this.#now();
    const nonce = crypto.getRandomValues(new Uint8Array(16));
    const keys = call.keyed === false ? undefined : this.#callKeys(call, list, now);
    const plain = call.body === undefined ? undefined : utf8(JSON.stringify(call.body));
    const isSealed = plain !== undefined && keys !== undefined && this.#url.protocol === "http:";
    const body = isSealed ? sealBody(keys.secret, nonce, plain) : plain;
    const digest = contentDigest(body ?? NO_BYTES);
    const certificate = call.signer.certificate(now);
    const memoryKey = keys?.header ?? "";
    const signature = signRequest((message) => call.signer.keys.sign(message), {
      method: call.method,
      authority: normalAuthority(this.#url.host, this.#url.protocol.slice(0, -1)),
      target: call.target,
      body: body ?? NO_BYTES,
      created: now,
      nonce,
      certificate,
      memoryKey,
    });
    const contentType = isSealed ? SEALED_TYPE : body ? "application/json" : "";
    const headers: Record<string, string> = {
      accept: "application/json",
      "memory-certificate": certificate,
      "memory-signature": signature,
      "content-digest": digest,
      // The relayer's time ends a little sooner, so that it can still say what it was doing.
      "x-deadline-ms": String(Math.max(1, Math.floor(left() * 950))),
    };
    if (contentType) headers["content-type"] = contentType;
    if (keys) Object.assign(headers, { "memory-key": memoryKey, "memory-route": keys.route });
    const answered = { signature, method: call.method, target: call.target, digest, contentType };
    return { headers, body, verifier: new Verifier(answered, list.identity, keys?.answerKey ?? NO_BYTES) };
  }

  async #sent(call: Call, signed: Signed, signal: AbortSignal): Promise<Response> {
    return this.#request(call.target, { method: call.method, headers: signed.headers, body: signed.body ?? null, signal });
  }

  async #request(target: string, init: RequestInit): Promise<Response> {
    let response: Response;
    try {
      // A redirect is not followed: it would send a signed request to an address that is not configured.
      response = await this.fetch(this.#url.origin + target, { ...init, redirect: "manual", cache: "no-store", credentials: "omit" });
    } catch {
      const [{ origin }, page] = [this.#url, pageOrigin()];
      // A browser does not tell which of the two it is.
      const unlisted = page === undefined || page === origin ? "" : `, or its --page-origins do not list ${page}`;
      throw new RelayerUnreachable(`no relayer answers at ${origin}${unlisted}`);
    }
    if (response.type === "opaqueredirect") throw this.#unproven(302);
    return response;
  }

  async #read(response: Response): Promise<Bytes> {
    const parts: Uint8Array[] = [];
    let size = 0;
    try {
      for await (const chunk of chunks(response)) {
        parts.push(chunk);
        size += chunk.length;
        if (size > MAX_ANSWER) break;
      }
    } catch {
      throw new RelayerUnreachable(`the connection to ${this.#url.origin} failed`);
    }
    if (size > MAX_ANSWER) throw new RelayerUnreachable(`${this.#url.origin} sent more than ${MAX_ANSWER} bytes`);
    const body = new Uint8Array(size);
    let at = 0;
    for (const part of parts) body.set(part, (at += part.length) - part.length);
    return body;
  }

  /** Check the proof of a response, and return whether the relayer had accepted the request. */
  #checked(response: Response, body: Uint8Array, verifier: Verifier): boolean {
    try {
      return verifier.check(response.headers.get("memory-proof") ?? "", response.status, body);
    } catch {
      throw this.#unproven(response.status);
    }
  }

  /** Return the error for a response without proof, of which only the status is used. */
  #unproven(status: number): MemrelayError {
    const { origin } = this.#url;
    if (status >= 300 && status < 400) return new RelayerUntrusted(`${origin} answers with a redirect; set the URL of the relayer itself`);
    if (status >= 500 || [408, 413, 429].includes(status)) return new RelayerUnreachable(`the server at ${origin} is not the relayer: ${status}`);
    this.#fleet = undefined;
    return new RelayerUntrusted(`what answers at ${origin} (${status}) did not prove that it is the relayer, and its answer was discarded`);
  }

  #refusal(response: Response, body: Bytes, accepted: boolean): Error {
    const header = Number(response.headers.get("retry-after") ?? 0);
    let problem: Partial<Problem> = {};
    try {
      problem = JSON.parse(new TextDecoder().decode(body)) as Problem;
    } catch {
      // an error in an unknown format
    }
    const fields = (problem.errors ?? []).slice(0, 5).map((one) => `${one.field}: ${one.rule}`).join("; ");
    const detail = `${problem.detail ?? "the relayer sent an error in an unknown format"}${fields ? ` (${fields})` : ""}`.slice(0, 500);
    const code = problem.code ?? `http_${response.status}`;
    const refused = new RelayerRefused(code, detail, response.status, problem.request_id ?? "", accepted, problem.errors ?? []);
    if (response.status === 504) return new DeadlineExceeded(`the relayer's work (${detail})`);
    if (code === "clock_skew" && typeof problem.server_time === "number") {
      const offset = problem.server_time - Math.floor(Date.now() / 1000);
      if (Math.abs(offset) <= DAY) return new Curable(refused, { offset });
    }
    if (code === "wrong_generation" && typeof problem.generation === "number") return new Curable(refused, { generation: problem.generation });
    if ([429, 502, 503].includes(response.status) || code === "replayed") {
      const after = Math.max(problem.retry_after ?? 0, Number.isFinite(header) ? header : 0);
      return new Curable(refused, { after });
    }
    return refused;
  }

  #parsed<Answer>(body: Bytes): Answer {
    try {
      return JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(body)) as Answer;
    } catch {
      throw new RelayerUnreachable(`${this.#url.origin} does not answer as a memrelay relayer does; check the URL`);
    }
  }

  #callKeys(call: Call, list: FleetList, now: number): CallKeys {
    const usable = list.keys.filter((key) => key.notAfter > now + KEY_LIFE).sort((a, b) => b.notAfter - a.notAfter);
    const fleetKey = usable[0]?.publicKey;
    if (!fleetKey) throw new RelayerUntrusted("the relayer is not trusted: all keys that it offers have expired");
    const generation = this.#generation(call);
    const name = `${place(call)} ${generation}`;
    const known = this.#keys.get(name);
    if (known && equal(known.fleetKey, fleetKey) && now + 120 < known.notAfter && known.notAfter <= now + KEY_LIFE) return known;
    const secret = call.signer.namespaceSecret(call.namespace, generation);
    const notAfter = now + KEY_LIFE;
    const fields = { account: call.signer.account, agentKey: call.signer.keys.publicKey, namespace: call.namespace, generation, secret, notAfter };
    const header = base64url(sealKey(fleetKey, fields));
    const route = hex(derive(secret, ["memrelay/v1/route"], { length: 16 }));
    const keys = { header, notAfter, fleetKey, secret, answerKey: answerKey(secret), route };
    if (this.#keys.size >= 256) this.#keys.delete(this.#keys.keys().next().value!);
    this.#keys.set(name, keys);
    return keys;
  }

  /** Return the generation of the secret that a call's namespace is kept under, as far as it is known. */
  #generation(call: Call): number {
    return this.#generations.get(place(call)) ?? GENERATION;
  }

  async #fleetList(signal: AbortSignal): Promise<{ list: FleetList }> {
    const known = await this.#fleet;
    const age = known ? this.#now() - known.fetchedAt : 0;
    if (known && age >= 0 && age < 3600) return known;
    const fetching = this.#fetchFleet(signal);
    this.#fleet = fetching;
    fetching.catch(() => {
      if (this.#fleet === fetching) this.#fleet = undefined;
    });
    return fetching;
  }

  async #fetchFleet(signal: AbortSignal): Promise<{ list: FleetList; fetchedAt: number }> {
    const response = await this.#request("/v1/keys", { method: "GET", headers: { accept: "application/json" }, signal });
    const body = await this.#read(response);
    if (response.status >= 300) throw this.#unproven(response.status);
    const list = parseFleetList(this.#parsed<KeysResponse>(body), this.#now());
    const { origin } = this.#url;
    const pinned = this.identity ?? (await this.trust.pinFirst(`${this.#url.protocol}//${this.#url.host}`, list.identity));
    if (!equal(list.identity, pinned)) {
      const [found, before] = [hex(list.identity).slice(0, 16), hex(pinned).slice(0, 16)];
      throw new RelayerUntrusted(
        `${origin} has another identity than the one it had before (${found} instead of ${before}); no key is sent to it. ` +
          `If its operator has changed it, run memrelay-gateway trust ${origin}, or remove memrelay:${origin} from the page's localStorage`,
      );
    }
    return { list, fetchedAt: this.#now() };
  }

  #now(): number {
    return Math.floor(Date.now() / 1000) + this.#clockOffset;
  }
}

const place = (call: Call): string => `${call.signer.keys.agent} ${call.namespace}`;

async function* chunks(response: Response): AsyncGenerator<Uint8Array> {
  const reader = response.body?.getReader();
  if (!reader) return;
  try {
    for (let part = await reader.read(); !part.done; part = await reader.read()) yield part.value;
  } finally {
    await reader.cancel().catch(() => undefined);
  }
}
