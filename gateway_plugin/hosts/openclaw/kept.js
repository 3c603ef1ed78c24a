// What could not be handed over to the bridge waits here until one takes it: in order within a session, and each once.
//
// A turn that the bridge has not taken within a moment is written into a file of its own (mode 0600, in the host's state
// folder), sealed so that only the bridge can open it: to an X25519 key that the bridge hands over at its start. The key is
// public, so that a gateway whose bridge never came up can seal, too; before the very first start there is none, and turns
// wait in memory alone.
import { createCipheriv, createPublicKey, diffieHellman, generateKeyPairSync, hkdfSync, randomBytes, randomUUID } from "node:crypto";
import { closeSync, fsyncSync, mkdirSync, openSync, readFileSync, readdirSync, renameSync, rmSync, statSync, writeSync } from "node:fs";
import { join } from "node:path";

const MAX_TURNS = 500;
const MAX_BYTES = 64 * 1024 * 1024;
const MAX_IN_MEMORY = 16 * 1024 * 1024;
const MOMENT_MS = 300;
const HAND_MS = 5_000;
const FIRST_PAUSE_MS = 1_000;
const LONGEST_PAUSE_MS = 30_000;
const MAX_ASKED = 16;
const MAX_REFUSALS = 3;
const MAGIC = Buffer.from("MRK1");
const KEY_FILE = "bridge.key";
const TURN = /^\d{15}-\d{6}-[0-9a-f-]{36}\.turn$/;
// What says nothing against a turn: the bridge is busy, late, stopped, or knows why it cannot work just now.
const PASSING = new Set([undefined, -32001, -32002, -32003, -32004, -32005]);
const SEALED_FOR_ANOTHER = -32006;

// Throws when the outbox did not take a turn, on a full disk for example: the folder of kept turns may be on another disk.
export const taken = (answer) => {
  const unwritable = answer?.status === "unwritable";
  if (unwritable || (answer?.status === "failed" && answer.unconfigured)) throw Object.assign(new Error(answer.detail), { unwritable });
  return answer;
};

export function sealed(key, text) {
  const once = generateKeyPairSync("x25519");
  const ours = Buffer.from(once.publicKey.export({ format: "jwk" }).x, "base64url");
  const theirs = createPublicKey({ key: { kty: "OKP", crv: "X25519", x: key }, format: "jwk" });
  const shared = diffieHellman({ privateKey: once.privateKey, publicKey: theirs });
  const salt = Buffer.concat([ours, Buffer.from(key, "base64url")]);
  const cipher = createCipheriv("aes-256-gcm", Buffer.from(hkdfSync("sha256", shared, salt, MAGIC, 32)), Buffer.alloc(12));
  // One message under one key: the nonce needs not differ.
  return Buffer.concat([MAGIC, ours, cipher.update(text, "utf8"), cipher.final(), cipher.getAuthTag()]);
}

// All registrations of one process share what waits in one folder.
export function keptIn(folder, log) {
  const all = (globalThis[Symbol.for("memrelay.kept")] ??= new Map());
  if (!all.has(folder)) all.set(folder, new Kept(folder, log));
  return all.get(folder);
}

export class Kept {
  // In the order in which they came; one from a file of an earlier process has no text, and no session that we could read.
  waiting = [];
  inMemory = 0;
  count = 0;
  pauseMs = FIRST_PAUSE_MS;

  constructor(folder, log) {
    this.folder = folder;
    this.log = log;
  }

  // A bridge has started: what waits goes there, and is sealed for it from now on.
  ready(bridge, key) {
    this.bridge = bridge;
    if (key) this.remember(key);
    this.load();
    this.goOn();
  }

  // Resolves when it was handed over, or when it is in safety and there is nothing more to wait for.
  hand(bridge, method, params, session) {
    if (!bridge.stopped) this.bridge = bridge;
    const id = randomUUID();
    const text = JSON.stringify({ method, params: { ...params, turnId: id } });
    const name = `${String(Date.now()).padStart(15, "0")}-${String(++this.count % 1e6).padStart(6, "0")}-${id}.turn`;
    const turn = { id, name, session, text, refusals: 0 };
    this.waiting.push(turn);
    this.inMemory += text.length;
    this.boundMemory();
    return new Promise((resolve) => {
      const late = setTimeout(resolve, HAND_MS);
      // Where nothing is asked just now, there is nothing to wait for.
      turn.moment = setTimeout(() => this.save(turn), this.paused ? 0 : MOMENT_MS);
      turn.done = (result) => {
        clearTimeout(late);
        clearTimeout(turn.moment);
        resolve(result);
      };
      this.deliver();
    });
  }

  get idle() {
    return !this.waiting.length;
  }

  // What is not in a file yet goes into one now: the host ends, or the bridge is gone.
  saveAll() {
    for (const turn of [...this.waiting]) this.save(turn);
  }

  deliver() {
    if (this.paused || !this.bridge || this.bridge.stopped) return;
    const before = new Set();
    let asked = this.waiting.filter((turn) => turn.asked).length;
    for (const turn of this.waiting) {
      const first = turn.session === undefined ? !before.size : !before.has(turn.session) && !before.has(undefined);
      before.add(turn.session);
      if (!first || turn.asked) continue;
      if (++asked > MAX_ASKED) return;
      this.ask(turn);
    }
  }

  async ask(turn) {
    turn.asked = true;
    let request;
    try {
      request = turn.text ? JSON.parse(turn.text) : this.opened(turn);
    } catch {
      return this.forget(turn); // somebody removed the file
    }
    try {
      const answer = taken(await this.bridge.ask(request.method, request.params, HAND_MS));
      this.pauseMs = FIRST_PAUSE_MS;
      turn.done?.(answer);
      this.forget(turn);
      this.deliver();
    } catch (error) {
      this.failed(turn, error);
    }
  }

  failed(turn, error) {
    turn.asked = false;
    if (!this.waiting.includes(turn)) return;
    const refused = error.code === SEALED_FOR_ANOTHER || (!PASSING.has(error.code) && ++turn.refusals >= MAX_REFUSALS);
    if (refused) return this.setAside(turn, error);
    this.save(turn);
    if (turn.saved) this.safe(turn);
    const safe = turn.text ? "in memory until it is" : `sealed in ${this.folder} until it is`;
    const what = error.unwritable ? "the outbox cannot take a captured turn" : "a captured turn could not be handed to the bridge";
    this.log.tell("warn", `${what} (${error.message}); it waits ${safe}`);
    this.pause();
  }

  pause() {
    if (this.paused) return;
    this.paused = setTimeout(() => this.goOn(), this.pauseMs).unref();
    this.pauseMs = Math.min(this.pauseMs * 2, LONGEST_PAUSE_MS);
  }

  goOn() {
    clearTimeout(this.paused);
    this.paused = undefined;
    this.deliver();
  }

  save(turn) {
    clearTimeout(turn.moment);
    if (!turn.text || turn.saved || !this.waiting.includes(turn)) return;
    const key = this.key();
    if (!key) return;
    try {
      this.write(turn.name, sealed(key, turn.text));
    } catch (error) {
      this.log.tell("warn", `a captured turn cannot be written to ${this.folder} (${error.code}); it waits in memory`);
      return;
    }
    turn.saved = true;
    // Under way, its text is still needed should it fail; afterwards the file has it.
    if (!turn.asked) this.safe(turn);
    this.boundFiles();
  }

  safe(turn) {
    this.letGo(turn);
    turn.done?.();
  }

  letGo(turn) {
    if (!turn.text) return;
    this.inMemory -= turn.text.length;
    turn.text = undefined;
  }

  opened(turn) {
    const data = readFileSync(join(this.folder, turn.name)).toString("base64url");
    return { method: "turn.kept", params: { sealed: data } };
  }

  forget(turn) {
    this.waiting = this.waiting.filter((other) => other !== turn);
    clearTimeout(turn.moment);
    this.letGo(turn);
    if (turn.saved) rmSync(join(this.folder, turn.name), { force: true });
  }

  setAside(turn, error) {
    this.save(turn);
    const { name, saved } = turn;
    turn.saved = false;
    turn.done?.();
    this.forget(turn);
    if (saved) renameSync(join(this.folder, name), join(this.folder, `${name}.refused`));
    const where = saved ? `; it stays in ${join(this.folder, `${name}.refused`)}` : "";
    this.log.tell("error", `a captured turn is given up: ${error.message}${where}`);
    this.deliver();
  }

  // The oldest go first, and it is said.
  boundFiles() {
    const files = this.files();
    let bytes = files.reduce((sum, { size }) => sum + size, 0);
    let more = files.length;
    for (const { name, size } of files) {
      if (more <= MAX_TURNS && bytes <= MAX_BYTES) break;
      more--;
      bytes -= size;
      this.drop(name);
    }
  }

  boundMemory() {
    const inMemory = this.waiting.filter((turn) => turn.text && !turn.saved && !turn.asked);
    while (inMemory.length > MAX_TURNS || (this.inMemory > MAX_IN_MEMORY && inMemory.length)) this.drop(inMemory.shift().name);
  }

  drop(name) {
    const turn = this.waiting.find((other) => other.name === name);
    if (turn) this.forget(turn);
    turn?.done?.();
    rmSync(join(this.folder, name), { force: true });
    const bounds = `${MAX_TURNS} turns or ${MAX_BYTES / 1024 / 1024} MiB`;
    this.log.tell("error", `a captured turn is lost: no bridge took it, and more than ${bounds} wait for one; the oldest goes first`);
  }

  // What earlier processes left.
  load() {
    const known = new Set(this.waiting.map(({ name }) => name));
    const left = this.files().filter(({ name }) => TURN.test(name) && !known.has(name));
    const turns = left.map(({ name }) => ({ id: name.slice(23, -5), name, session: undefined, saved: true, refusals: 0 }));
    this.waiting = [...turns, ...this.waiting];
  }

  files() {
    try {
      const named = readdirSync(this.folder).filter((name) => name.includes(".turn") && !name.startsWith("."));
      return named.sort().map((name) => ({ name, size: statSync(join(this.folder, name), { throwIfNoEntry: false })?.size ?? 0 }));
    } catch {
      return [];
    }
  }

  key() {
    try {
      this.known ??= readFileSync(join(this.folder, KEY_FILE), "utf8").trim();
    } catch {
      return undefined;
    }
    return this.known;
  }

  remember(key) {
    if (this.key() === key) return;
    this.known = key;
    try {
      this.write(KEY_FILE, Buffer.from(`${key}\n`));
    } catch {
      // It is at hand in this process; the next one is told it again.
    }
  }

  write(name, data) {
    mkdirSync(this.folder, { recursive: true, mode: 0o700 });
    const beside = join(this.folder, `.${name}.${randomBytes(8).toString("hex")}`);
    const file = openSync(beside, "wx", 0o600);
    try {
      writeSync(file, data);
      fsyncSync(file);
    } finally {
      closeSync(file);
    }
    renameSync(beside, join(this.folder, name));
  }
}
