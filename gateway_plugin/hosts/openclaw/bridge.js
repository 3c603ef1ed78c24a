// The line to the bridge process: starts it, asks it, restarts it, and never makes a turn wait for it longer than asked.
import { spawn } from "node:child_process";
import { Log, eachLine } from "./log.js";

const PROTOCOL = 1;
const HEARTBEAT_MS = 10_000;
// A machine under load makes a process pause for seconds: one that misses a beat is slow, one that is silent so long hangs.
const SILENCE_MS = 30_000;
const START_MS = 60_000;
const STOP_MS = 7_000;
const LET_GO_MS = 3_000;
const LONGEST_PAUSE_MS = 60_000;
const SETTLED_MS = 5_000;
const MAX_PENDING = 256;
const MAX_ANSWER = 16 * 1024 * 1024;
const MAX_SAID = 500;
// So many lines that are no answers, and the program is another one than it should be.
const MAX_STRANGE = 200;

// The host registers a plugin several times in one process, and sends hooks to one registration and commands to another:
// all of them share one bridge for as long as they have the same configuration.
export function sharedBridge(options) {
  const bridges = (globalThis[Symbol.for("memrelay.bridges")] ??= new Map());
  const key = JSON.stringify([options.command, options.hello]);
  if (!bridges.has(key)) bridges.set(key, Object.assign(new Bridge(), { log: new Log(options.logger) }, options));
  return bridges.get(key);
}

export function cannotRun(program, pluginId, { code }) {
  if (code !== "ENOENT" && code !== "EACCES") return `the bridge cannot run: ${code}`;
  const set = `openclaw config set plugins.entries.${pluginId}.config.command "$(command -v memrelay-gateway)"`;
  return `cannot run ${program}: run \`python3 -m pip install .\` in a clone of memrelay, then \`${set}\``;
}

class Bridge {
  // Besides these: command, hello and log, as sharedBridge was given them; `up(info)` is called when it has started; serve,
  // where the host lends its model.
  info = null;
  pending = new Map();
  lastId = 0;
  failures = 0;
  wanted = false;
  stopped = false;

  // Once stopped, a bridge is started by its service again, and not by what a turn of before still asks.
  start() {
    this.stopped = false;
    if (this.wanted) return;
    this.wanted = true;
    this.launch();
  }

  launch() {
    const [program, ...rest] = this.command;
    const child = (this.child = spawn(program, rest));
    // Neither the child nor its pipes keep a finished command alive; requests do, by their timers.
    for (const handle of [child, child.stdin, child.stdout, child.stderr]) handle?.unref?.();
    child.stdin.on("error", () => {});
    let strange = 0;
    const isStrange = () => {
      const why = `what runs as ${program} prints what is no answer, and is ended: is it memrelay-gateway?`;
      if (++strange === MAX_STRANGE) this.giveUp(child, "error", why);
    };
    const floods = () => this.giveUp(child, "error", `what runs as ${program} prints lines without an end, and is ended`);
    eachLine(child.stdout, MAX_ANSWER, (line, lost) => lost || this.received(line, child) || isStrange(), floods);
    const said = (line, lost) => this.said(line + (lost ? " ..." : ""));
    eachLine(child.stderr, MAX_SAID, said, (lost) => lost > MAX_ANSWER && floods());
    child.on("error", (error) => this.ended(child, cannotRun(program, this.hello.pluginId, error)));
    child.on("exit", (code, signal) => this.ended(child, `the bridge ended with ${signal ?? `code ${code}`}`));
    const hello = this.ask("initialize", { ...this.hello, protocol: [PROTOCOL], model: Boolean(this.serve) }, START_MS);
    hello.then((info) => this.started(child, info)).catch((error) => this.giveUp(child, "error", error.message));
  }

  // What the bridge writes beside its answers is for the log: what tells of a recall is no warning.
  said(line) {
    const sentence = line.replace(/^memrelay: /, "");
    this.log.tell(/^(recall|injecting) /.test(sentence) ? "info" : "warn", sentence, { limited: true });
  }

  started(child, info) {
    if (child !== this.child) return;
    this.info = info;
    if (info.problem) this.log.tell("error", `${info.problem}\nThe gateway goes on without memory.`);
    this.since = Date.now();
    const hangs = () => this.giveUp(child, "warn", "the bridge does not answer; it is ended and started again");
    const beat = () => this.ask("ping", {}, SILENCE_MS).catch(hangs);
    this.heart = setInterval(beat, HEARTBEAT_MS).unref();
    this.up?.(info);
  }

  giveUp(child, level, sentence) {
    if (child !== this.child || child.killed) return;
    this.log.tell(level, sentence);
    child.kill("SIGKILL");
  }

  ended(child, reason) {
    if (child !== this.child) return;
    this.child = null;
    if (this.info && Date.now() - this.since > SETTLED_MS) this.failures = 0;
    this.info = null;
    this.problem = reason;
    clearInterval(this.heart);
    for (const { reject } of [...this.pending.values()]) reject(new Error(reason));
    if (!this.wanted) return;
    const pause = Math.min(1000 * 2 ** this.failures++, LONGEST_PAUSE_MS);
    this.log.tell("warn", `${reason}; trying again in the background. The gateway goes on without memory.`);
    this.retry = setTimeout(() => this.launch(), pause).unref();
  }

  // Takes a line of the bridge; false when it is neither an answer nor a question of its own.
  received(line, child) {
    let message;
    try {
      message = JSON.parse(line);
    } catch {
      return false;
    }
    if (message?.jsonrpc !== "2.0") return false;
    if (message.method) {
      this.serve?.(message, child);
      return true;
    }
    const waiting = this.pending.get(message.id);
    const failed = ({ message: sentence, code }) => Object.assign(new Error(sentence), { code });
    if (message.error) waiting?.reject(failed(message.error));
    else waiting?.resolve(message.result);
    return true;
  }

  // One request: ends when it is answered, aborted, out of time, or when the bridge ends. One to a bridge that is starting
  // waits in its pipe; one to a bridge that is down fails at once.
  ask(method, params, timeoutMs, signal) {
    if (this.stopped) return Promise.reject(new Error("the bridge is stopped"));
    this.start();
    const child = this.child;
    if (!child) return Promise.reject(new Error(this.problem));
    if (this.pending.size >= MAX_PENDING) return Promise.reject(new Error("too many requests are waiting"));
    const id = ++this.lastId;
    const write = (message) => child.stdin.writable && child.stdin.write(`${JSON.stringify(message)}\n`);
    return new Promise((resolve, reject) => {
      const cancel = (reason) => {
        write({ jsonrpc: "2.0", method: "cancel", params: { id } });
        this.pending.get(id).reject(new Error(reason));
      };
      const aborted = () => cancel("aborted");
      const timer = setTimeout(() => cancel(this.info ? "the deadline passed" : "the bridge is still starting"), timeoutMs);
      const settle = (outcome) => (value) => {
        clearTimeout(timer);
        signal?.removeEventListener("abort", aborted);
        this.pending.delete(id);
        outcome(value);
      };
      this.pending.set(id, { resolve: settle(resolve), reject: settle(reject) });
      signal?.addEventListener("abort", aborted, { once: true });
      if (signal?.aborted) aborted();
      else write({ jsonrpc: "2.0", id, method, params: { ...params, deadlineMs: timeoutMs } });
    });
  }

  // The host gives a service 5 s to stop; a bridge that has more to deliver ends by itself, a little later.
  async stop() {
    [this.wanted, this.stopped] = [false, true];
    clearTimeout(this.retry);
    clearInterval(this.heart);
    const child = this.child;
    if (!child) return;
    const gone = new Promise((resolve) => child.once("exit", resolve));
    const late = new Promise((resolve) => setTimeout(resolve, LET_GO_MS));
    setTimeout(() => child.kill("SIGKILL"), STOP_MS).unref();
    child.stdin.end();
    await Promise.race([gone, late]);
    this.log.sum();
    this.log.tell("info", "stopped");
  }
}
