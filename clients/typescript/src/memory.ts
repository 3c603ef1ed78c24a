/** Memories of an agent and of each of its users. */

import type * as api from "./api.js";
import { fromHex, hex } from "./bytes.js";
import { type Call, Client, parseOrigin } from "./client.js";
import { InvalidInput, MemrelayError, RelayerRefused, RelayerUnreachable, SettingsError } from "./errors.js";
import { agentName, parseSecret, RootKeys, Signer, userNamespace, userOf } from "./keys.js";
import { defaultTrustStore, environment, findSecret, type TrustStore } from "./trust.js";

const PAGE = 100;
const MIN_SCORE = 0.005;

export interface MemoryOptions {
  /** The agent; undefined is the default agent. */
  agent?: string;
  /** The user of the agent whose memories are meant; undefined for the agent's own. */
  user?: string;
  /** The session that memories are added in, as a label. */
  session?: string;
  /** The URL of the relayer; undefined takes MEMRELAY_URL, or http://127.0.0.1:8787. */
  url?: string;
  /** The secret of the account; undefined takes MEMRELAY_SECRET, or the file of `memrelay-gateway init`. */
  secret?: string;
  /** The maximum duration of a call in seconds. */
  timeout?: number;
  /** The identity that the relayer must have, in hexadecimal; undefined pins the first one. */
  identity?: string;
  /** The pinned identities; undefined uses the file that the Python client uses, or `localStorage` in a browser. */
  trust?: TrustStore;
}

export interface OfUser {
  /** Replaces the user of the object for this call. */
  user?: string;
  /** The maximum duration of this call in seconds. */
  timeout?: number;
}

export type Metadata = Record<string, unknown>;
/** A filter on tags and metadata, see "Filters" in docs/protocol.md. */
export type Where = Record<string, unknown>;

export interface StoredMemory {
  id: string;
  text: string;
  kind: string;
  state: string;
  tags: string[];
  metadata: Metadata;
  session: string;
  createdAt: Date;
  occurredAt: Date | undefined;
  supersedes: string[];
  supersededBy: string | undefined;
}

export interface SearchHit extends StoredMemory {
  /** The calibrated relevance, from 0 to 1. */
  score: number;
  /** The part of a long text that matches best; "" otherwise. */
  passage: string;
}

export interface Added {
  /** The id of the first memory; "" if there is none. */
  id: string;
  ids: string[];
  status: "stored" | "duplicate" | "empty" | "pending";
}

export interface AddOptions extends OfUser {
  tags?: string[];
  metadata?: Metadata;
  session?: string;
  occurredAt?: Date;
}

export interface Message {
  role: "user" | "assistant";
  content: string;
}

export interface ErasureReport {
  id: string;
  state: string;
  memories: string[];
  derived: string[];
}

export interface MemoryChange {
  change: string;
  id: string;
  /** The memory as it is now; undefined if it was erased. */
  memory: StoredMemory | undefined;
}

interface Place {
  client: Client;
  agent: Signer;
  owner: Signer;
}

export class Memory {
  readonly #options: MemoryOptions;
  readonly #agent: string;
  readonly #url: string;
  #place: Promise<Place> | undefined;
  #closed = false;

  /** Create an object for an agent, or for one of its users. Nothing is sent before the first call. */
  constructor(options: MemoryOptions = {}) {
    this.#options = options;
    this.#agent = agentName(options.agent);
    this.#url = options.url ?? (environment("MEMRELAY_URL") || "http://127.0.0.1:8787");
    if (options.secret !== undefined) parseSecret(options.secret);
    if (options.identity !== undefined && !/^[0-9a-f]{64}$/i.test(options.identity)) throw new SettingsError("identity: must be 64 hexadecimal digits");
    if (options.timeout !== undefined && !(options.timeout > 0)) throw new InvalidInput("timeout", "must be a positive number of seconds");
    userNamespace(this.#agent, options.user);
    parseOrigin(this.#url);
  }

  /** Add a text, which is stored as it is, or what is worth keeping of messages. */
  async add(content: string | readonly Message[], options: AddOptions = {}): Promise<Added> {
    if (typeof content === "string") return (await this.addMany([content], options))[0]!;
    if (!Array.isArray(content)) throw new InvalidInput("content", "must be a text or a list of messages");
    const turns = content.map((message: Message, number) => {
      if (!["user", "assistant"].includes(message?.role)) throw new InvalidInput(`content[${number}].role`, "must be user or assistant");
      if (typeof message.content !== "string") throw new InvalidInput(`content[${number}].content`, "must be a text");
      return { role: message.role, text: message.content, ...this.#when(options) };
    });
    const timeout = this.#timeout(options);
    const body = {
      turns,
      session: options.session ?? this.#options.session ?? "",
      ...labels(options),
      wait_ms: Math.floor(Math.min(timeout * 500, 20_000)),
      idempotency_key: randomKey(),
    };
    const answer = await this.#call<api.AnalyzeResponse>("add", "POST", "/v1/analyze", options, { body });
    const stored = (answer.memories ?? []).filter((one) => one.status !== "refused");
    const facts = answer.facts ?? [];
    const ids = [...new Set([...stored.map((one) => one.id), ...facts])];
    if (answer.state === "pending") return { id: ids[0] ?? "", ids, status: "pending" };
    if (!ids.length) return { id: "", ids, status: "empty" };
    const isNew = facts.length > 0 || stored.some((one) => one.status === "stored");
    return { id: ids[0]!, ids, status: isNew ? "stored" : "duplicate" };
  }

  /** Add texts, in requests of up to a hundred. */
  async addMany(texts: readonly string[], options: AddOptions = {}): Promise<Added[]> {
    const source = { session: options.session ?? this.#options.session ?? "" };
    const items = texts.map((text) => ({ text, source, ...labels(options), ...this.#when(options) }));
    const added: Added[] = [];
    for (let first = 0; first < items.length; first += PAGE) {
      const body = { items: items.slice(first, first + PAGE), idempotency_key: randomKey() };
      const answer = await this.#call<api.RememberResponse>("add", "POST", "/v1/memories", options, { body });
      for (const one of answer.memories) {
        if (one.status === "refused") throw new RelayerRefused(one.code ?? "refused", "the memory was not stored", 409);
        added.push({ id: one.id, ids: [one.id], status: one.status as Added["status"] });
      }
    }
    return added;
  }

  /** Search for memories that are relevant to a query, best first. An empty result is valid: nothing relevant is known. */
  async search(query: string, options: OfUser & { limit?: number; minScore?: number; where?: Where } = {}): Promise<SearchHit[]> {
    if (typeof query !== "string" || !query.trim()) throw new InvalidInput("query", "must be a text that is not empty");
    const { limit = 5, minScore = MIN_SCORE, where } = options;
    const body = { query, limit, floor: minScore, ...(where ? { where } : {}) };
    const answer = await this.#call<api.RecallResponse>("search", "POST", "/v1/recall", options, { body, attempts: 2 });
    return answer.memories.map(hit);
  }

  async get(id: string, options: OfUser = {}): Promise<StoredMemory> {
    return stored((await this.#get(id, options)).memory);
  }

  /** Return all versions of a memory, oldest first. */
  async history(id: string, options: OfUser = {}): Promise<StoredMemory[]> {
    return ((await this.#get(id, options)).history ?? []).map(stored);
  }

  /** Iterate over the memories, newest first. */
  async *list(options: OfUser & { where?: Where } = {}): AsyncGenerator<StoredMemory> {
    let cursor: string | null | undefined;
    do {
      const body: object = { limit: PAGE, ...(cursor ? { cursor } : {}), ...(options.where ? { where: options.where } : {}) };
      const page: api.ListResponse = await this.#call("list", "POST", "/v1/memories/list", options, { body });
      yield* page.memories.map(stored);
      cursor = page.next_cursor;
    } while (cursor);
  }

  /** Replace a memory by a new version, which is returned. What is undefined is not changed. */
  async update(id: string, changes: { text?: string; tags?: string[]; metadata?: Metadata }, options: OfUser = {}): Promise<StoredMemory> {
    const given = Object.fromEntries(Object.entries(changes).filter(([, value]) => value !== undefined));
    if (!Object.keys(given).length) throw new InvalidInput("text", "give at least one of text, tags and metadata");
    checkNumbers(changes.metadata, "metadata");
    const body = { ...given, idempotency_key: randomKey() };
    const answer = await this.#call<api.SupersedeResponse>("update", "POST", `${path(id)}/supersede`, options, { body });
    return this.get(answer.id, options);
  }

  /** Hide a memory from every search; `restore` brings it back. */
  async delete(id: string, options: OfUser = {}): Promise<void> {
    await this.#call("delete", "DELETE", `${path(id)}?mode=forget`, options);
  }

  /** Hide all memories of a user, or those that pass a filter, and return their number. */
  async deleteAll(options: OfUser & { where?: Where } = {}): Promise<number> {
    const body = options.where ? { where: options.where } : { everything: true };
    for (let count = 0; ; ) {
      const answer = await this.#call<api.DeleteResponse>("delete", "POST", "/v1/memories/delete", options, { body });
      count += answer.forgotten;
      if (!answer.remaining) return count;
    }
  }

  async restore(id: string, options: OfUser = {}): Promise<void> {
    await this.#call("restore", "POST", `${path(id)}/restore`, options);
  }

  /** Delete a memory permanently, with its versions and everything derived from it. */
  async erase(id: string, options: OfUser = {}): Promise<ErasureReport> {
    const answer = await this.#call<api.ForgetResponse>("erase", "DELETE", `${path(id)}?mode=erase`, options, { asOwner: true });
    return report(answer.erasure);
  }

  /** Delete all memories of a user permanently. */
  async eraseAll(options: OfUser = {}): Promise<ErasureReport> {
    await this.#checkUser(options);
    const erase = (body: object) =>
      this.#call<api.EraseNamespaceResponse>("erase", "POST", "/v1/namespaces/erase", options, { body, asOwner: true });
    const counted = await erase({ dry_run: true });
    return report((await erase({ dry_run: false, confirm: counted.confirm })).erasure);
  }

  /** Return the changes after a cursor, oldest first; "0" for all. `wait` is the time in seconds to wait for the first one. */
  async changes(cursor = "0", options: OfUser & { wait?: number } = {}): Promise<{ changes: MemoryChange[]; cursor: string; more: boolean }> {
    const { wait = 0 } = options;
    const query = new URLSearchParams({ after: cursor, limit: String(PAGE), wait_ms: String(Math.floor(wait * 1000)) });
    const longer = { ...options, timeout: this.#timeout(options) + wait };
    const answer = await this.#call<api.ChangesResponse>("changes", "GET", `/v1/changes?${query}`, longer);
    const changes = answer.changes.map((one) => ({ change: one.change, id: one.id, memory: one.memory ? stored(one.memory) : undefined }));
    return { changes, cursor: answer.next, more: answer.more ?? false };
  }

  /** Have the relayer's language model answer a question from memories alone. */
  async ask(question: string, options: OfUser = {}): Promise<{ status: string; text: string; sources: SearchHit[] }> {
    const answer = await this.#call<api.AskResponse>("ask", "POST", "/v1/ask", options, { body: { question }, attempts: 1 });
    return { status: answer.status, text: answer.answer ?? "", sources: (answer.citations ?? []).map(hit) };
  }

  /** Return what is known of a user as one document in Markdown. */
  async profile(options: OfUser & { maxTokens?: number } = {}): Promise<{ text: string; shown: number; total: number }> {
    const answer = await this.#call<api.ProfileResponse>("profile", "GET", `/v1/profile?max_tokens=${options.maxTokens ?? 1000}`, options);
    return { text: answer.document, shown: answer.shown, total: answer.total };
  }

  /** Iterate over the memories, oldest first, each as a JSON object that `import` accepts. */
  async *export(options: OfUser = {}): AsyncGenerator<api.Memory> {
    await this.#checkUser(options);
    // A stream is not retried. An ordinary call before it corrects the clock and fetches the keys.
    await this.#call("export", "GET", "/v1/memories?limit=1", options);
    const place = await this.#opened();
    let ended = false;
    const longer = { ...options, timeout: options.timeout ?? 600 };
    for await (const line of place.client.lines(this.#request(place, "export", "POST", "/v1/export", longer, { body: {} }))) {
      let read: { memory?: api.Memory; end?: boolean };
      try {
        read = JSON.parse(line) as typeof read;
      } catch {
        throw new RelayerUnreachable("the relayer sent no export; check the URL");
      }
      ended = read.end === true;
      if (read.memory) yield read.memory;
    }
    if (!ended) throw new RelayerUnreachable("the export was cut short: what arrived is not everything");
  }

  /** Store memories that `export` returned. Importing them again stores nothing twice. */
  async import(exported: Iterable<object> | AsyncIterable<object>, options: OfUser = {}): Promise<Record<"stored" | "duplicate" | "skipped" | "refused", number>> {
    const counts = { stored: 0, duplicate: 0, skipped: 0, refused: 0 };
    let page: object[] = [];
    const send = async () => {
      const body = { memories: page, as_backup: true, idempotency_key: randomKey() };
      const answer = await this.#call<api.ImportResponse>("import", "POST", "/v1/import", options, { body });
      for (const one of answer.memories) counts[one.status as keyof typeof counts] += 1;
      page = [];
    };
    for await (const memory of exported) {
      page.push(memory);
      if (page.length === PAGE) await send();
    }
    if (page.length) await send();
    return counts;
  }

  /** Return the names of the agent's users that have memories. */
  async users(options: Pick<OfUser, "timeout"> = {}): Promise<string[]> {
    const found = new Set<string>();
    let cursor: string | null | undefined;
    do {
      const query: string = cursor ? `&cursor=${encodeURIComponent(cursor)}` : "";
      const page: api.NamespacesResponse = await this.#call("users", "GET", `/v1/namespaces?limit=${PAGE}${query}`, options, { keyed: false });
      for (const one of page.namespaces) {
        const user = one.state === "live" ? userOf(this.#agent, one.name) : undefined;
        if (user !== undefined) found.add(user);
      }
      cursor = page.next_cursor;
    } while (cursor);
    return [...found].sort();
  }

  /** Drop the keys. Later calls fail. */
  close(): void {
    this.#closed = true;
    this.#place = undefined;
  }

  #get(id: string, options: OfUser): Promise<api.MemoryResponse> {
    return this.#call("get", "GET", path(id), options);
  }

  async #checkUser(options: OfUser): Promise<void> {
    const user = options.user ?? this.#options.user;
    if (user !== undefined && !(await this.users(options)).includes(user)) {
      throw new InvalidInput("user", "this agent has no memories of a user of this name; see users()");
    }
  }

  #timeout(options: OfUser): number {
    return options.timeout ?? this.#options.timeout ?? 60;
  }

  #when(options: AddOptions): { occurred_at?: string } {
    if (options.occurredAt === undefined) return {};
    if (Number.isNaN(options.occurredAt.getTime())) throw new InvalidInput("occurredAt", "must be a valid date");
    return { occurred_at: options.occurredAt.toISOString() };
  }

  async #call<Answer>(name: string, method: string, target: string, options: OfUser, more: CallOptions = {}): Promise<Answer> {
    const place = await this.#opened();
    return place.client.call<Answer>(this.#request(place, name, method, target, options, more));
  }

  #request(place: Place, name: string, method: string, target: string, options: OfUser, more: CallOptions): Call {
    const { asOwner, ...rest } = more;
    const namespace = userNamespace(this.#agent, options.user ?? this.#options.user);
    const signer = asOwner ? place.owner : place.agent;
    return { name, method, target, signer, namespace, timeout: this.#timeout(options), ...rest };
  }

  #opened(): Promise<Place> {
    if (this.#closed) return Promise.reject(new MemrelayError("the memory is closed"));
    this.#place ??= this.#open();
    this.#place.catch(() => (this.#place = undefined));
    return this.#place;
  }

  async #open(): Promise<Place> {
    const { secret, trust, identity } = this.#options;
    const root = new RootKeys(parseSecret(secret ?? (await findSecret()), secret === undefined ? "MEMRELAY_SECRET" : "secret"));
    const client = new Client(this.#url, trust ?? defaultTrustStore(), identity === undefined ? undefined : fromHex(identity));
    return { client, agent: new Signer(root, this.#agent), owner: new Signer(root, this.#agent, true) };
  }
}

type CallOptions = Pick<Call, "body" | "keyed" | "attempts"> & { asOwner?: boolean };

/** Refuse NaN and infinities, which JSON would silently turn into null. */
function checkNumbers(value: unknown, field: string): void {
  if (typeof value === "number" && !Number.isFinite(value)) throw new InvalidInput(field, "a number must be finite");
  if (typeof value === "object" && value !== null) for (const [key, one] of Object.entries(value)) checkNumbers(one, `${field}.${key}`);
}

function labels({ tags, metadata }: AddOptions): object {
  checkNumbers(metadata, "metadata");
  return { ...(tags ? { tags } : {}), ...(metadata ? { metadata } : {}) };
}

function path(id: string): string {
  if (typeof id !== "string" || !/^[0-9a-z]{1,64}$/i.test(id)) throw new InvalidInput("id", "is no id of a memory");
  return `/v1/memories/${id}`;
}

function randomKey(): string {
  return hex(crypto.getRandomValues(new Uint8Array(16)));
}

function stored(memory: api.Memory): StoredMemory {
  return {
    id: memory.id,
    text: memory.text,
    kind: memory.kind,
    state: memory.state ?? "live",
    tags: [...(memory.tags ?? [])],
    metadata: (memory.metadata ?? {}) as Metadata,
    session: memory.source?.session ?? "",
    createdAt: new Date(memory.created_at),
    occurredAt: memory.occurred_at == null ? undefined : new Date(memory.occurred_at),
    supersedes: [...(memory.supersedes ?? [])],
    supersededBy: memory.superseded_by ?? undefined,
  };
}

function hit(memory: api.RecallHit): SearchHit {
  return { ...stored(memory), score: memory.relevance, passage: memory.passage ?? "" };
}

function report(view: api.ErasureView | null | undefined): ErasureReport {
  if (!view) throw new RelayerRefused("no_report", "the relayer gave no report: it is older than this client", 200);
  return { id: view.id, state: view.state, memories: [...(view.memories ?? [])], derived: [...(view.derived ?? [])] };
}
