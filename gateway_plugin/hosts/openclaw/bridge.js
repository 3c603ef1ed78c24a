// The line to the bridge process: starts it, asks it, restarts it, and never makes a turn wait for it longer than asked.
import { spawn } from "node:child_process";
import { createInterface } from "node:readline";

const PROTOCOL = 1;
const HEARTBEAT_MS = 10_000;
// A machine under load makes a process pause for seconds: one that missed a beat is slow, one that missed three hangs.
const MISSED_BEATS = 3;
const START_MS = 60_000;
const STOP_MS = 7_000;
const LONGEST_PAUSE_MS = 60_000;
const SETTLED_MS = 5_000;
const MAX_PENDING = 256;
const MAX_TOLD = 200;

// The host registers a plugin several times in one process, and sends hooks to one registration and commands to another:
// all of them share one bridge for as long as they have the same configuration.
export function sharedBridge(options) {
  const bridges = (globalThis[Symbol.for("memrelay.bridges")] ??= new Map());
  const key = JSON.stringify([options.command, options.hello]);
  if (!bridges.has(key)) bridges.set(key, new Bridge(options));
  return bridges.get(key);
}

class Bridge {
  constructor({ command, hello, logger }) {
    this.command = command;
    this.hello = hello;
    this.logger = logger;
    this.info = null;
    this.problem = "memory was not started";
    this.pending = new Map();
    this.lastId = 0;
    this.failures = 0;
    this.told = new Set();
    this.wanted = false;
  }

  // Says a thing once: a bridge that cannot start must not fill the log.
  tell(level, sentence) {
    if (this.told.has(sentence) || this.told.size >= MAX_TOLD) return;
    this.told.add(sentence);
    this.logger[level]?.(`memrelay: ${sentence}`);
  }

  start() {
    if (this.wanted) return;
    this.wanted = true;
    this.launch();
  }

  launch() {
    const [program, ...rest] = this.command;
    const child = spawn(program, rest, { stdio: ["pipe", "pipe", "pipe"], env: process.env });
    this.child = child;
    this.ready = new Promise((resolve) => (this.isReady = resolve));
    // Neither the child nor its pipes keep a finished command alive; requests do, by their timers.
    for (const handle of [child, child.stdin, child.stdout, child.stderr]) handle?.unref?.();
    child.stdin.on("error", () => {});
    createInterface({ input: child.stdout }).on("line", (line) => this.received(line));
    createInterface({ input: child.stderr }).on("line", (line) => this.tell("warn", line.slice(0, 500)));
    child.on("error", (error) => this.ended(child, this.cannotRun(error)));
    child.on("exit", (code, signal) => this.ended(child, `the bridge ended with ${signal ?? `code ${code}`}`));
    this.send("initialize", { ...this.hello, protocol: [PROTOCOL] }, START_MS).then(
      (info) => this.started(child, info),
      (error) => {
        if (child !== this.child) return;
        this.tell("error", error.message);
        this.problem = error.message;
        child.kill("SIGKILL");
      },
    );
  }

  started(child, info) {
    if (child !== this.child) return;
    this.info = info;
    this.problem = info.problem;
    if (info.problem) this.tell("error", `${info.problem}\nThe gateway goes on without memory.`);
    this.missed = 0;
    this.since = Date.now();
    this.isReady(true);
    this.heart = setInterval(() => this.beat(child), HEARTBEAT_MS);
    this.heart.unref();
  }

  async beat(child) {
    try {
      await this.send("ping", {}, HEARTBEAT_MS);
      this.missed = 0;
    } catch {
      if (child !== this.child || ++this.missed < MISSED_BEATS) return;
      this.tell("warn", "the bridge does not answer; it is ended and started again");
      child.kill("SIGKILL");
    }
  }

  ended(child, reason) {
    if (child !== this.child) return;
    this.child = null;
    if (this.info && Date.now() - this.since > SETTLED_MS) this.failures = 0;
    this.info = null;
    clearInterval(this.heart);
    this.isReady(false);
    for (const { reject } of this.pending.values()) reject(new Error(reason));
    if (!this.wanted) return;
    this.problem = reason;
    const pause = Math.min(1000 * 2 ** this.failures++, LONGEST_PAUSE_MS);
    this.tell("warn", `${reason}; trying again in the background. The gateway goes on without memory.`);
    this.retry = setTimeout(() => this.wanted && this.launch(), pause);
    this.retry.unref();
  }

  cannotRun(error) {
    if (error.code !== "ENOENT" && error.code !== "EACCES") return `the bridge cannot run: ${error.code}`;
    return (
      `cannot run ${this.command[0]}: run \`python3 -m pip install memrelay\`, then \`openclaw config set ` +
      `plugins.entries.${this.hello.pluginId}.config.command "$(command -v memrelay-gateway)"\``
    );
  }

  received(line) {
    let message;
    try {
      message = JSON.parse(line);
    } catch {
      return;
    }
    const waiting = this.pending.get(message.id);
    if (!waiting) return;
    if (message.error) waiting.reject(new Error(message.error.message));
    else waiting.resolve(message.result);
  }

  // One request: ends when it is answered, aborted, out of time, or when the bridge ends.
  send(method, params, timeoutMs, signal) {
    const child = this.child;
    if (!child) return Promise.reject(new Error(this.problem));
    if (this.pending.size >= MAX_PENDING) return Promise.reject(new Error("too many requests are waiting"));
    const id = ++this.lastId;
    const write = (message) => child.stdin.writable && child.stdin.write(`${JSON.stringify(message)}\n`);
    return new Promise((resolve, reject) => {
      const cancel = (reason) => {
        write({ jsonrpc: "2.0", method: "cancel", params: { id } });
        reject(new Error(reason));
      };
      const aborted = () => cancel("aborted");
      const timer = setTimeout(() => cancel("the deadline passed"), timeoutMs);
      signal?.addEventListener("abort", aborted, { once: true });
      const settle = (outcome) => (value) => {
        clearTimeout(timer);
        signal?.removeEventListener("abort", aborted);
        this.pending.delete(id);
        outcome(value);
      };
      [resolve, reject] = [settle(resolve), settle(reject)];
      this.pending.set(id, { resolve, reject });
      if (signal?.aborted) aborted();
      else write({ jsonrpc: "2.0", id, method, params: { ...params, deadlineMs: timeoutMs } });
    });
  }

  // A request on behalf of a turn: waits for a bridge that is starting, but not for one that is down.
  async ask(method, params, timeoutMs, signal) {
    this.start();
    const end = Date.now() + timeoutMs;
    if (!this.info) {
      if (!this.child) throw new Error(this.problem);
      let timer;
      const late = new Promise((resolve) => (timer = setTimeout(resolve, timeoutMs, false)));
      const ready = await Promise.race([this.ready, late]);
      clearTimeout(timer);
      if (!ready) throw new Error(this.problem || "the bridge is starting");
    }
    return this.send(method, params, Math.max(end - Date.now(), 1), signal);
  }

  async stop() {
    this.wanted = false;
    clearTimeout(this.retry);
    const child = this.child;
    if (!child) return;
    const gone = new Promise((resolve) => child.once("exit", resolve));
    const force = setTimeout(() => child.kill("SIGKILL"), STOP_MS);
    child.stdin.end();
    await gone;
    clearTimeout(force);
  }
}
