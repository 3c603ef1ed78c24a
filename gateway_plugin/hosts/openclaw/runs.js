// What the bridge is told of a run's messages: what was said, and the names of tools that were called.
import { statSync, utimesSync } from "node:fs";

const HISTORY = 60;
const MAX_TEXT = 20_000;
const MAX_RUN = 4_000;
const MAX_CHARS = 4_000_000;
const MAX_RUNS = 512;
const AFTER_RUN_MS = 2_000;
const MAX_LOOKS = 6;
const MAX_NAMES = 2_000;
const MAX_NAME = 128;

export const some = (given, keys) => Object.fromEntries(keys.filter((key) => given?.[key] != null).map((key) => [key, given[key]]));
const partsOf = (content) =>
  [content]
    .flat()
    .map((part) => (part?.type === "text" ? part.text : part))
    .map((part) => (typeof part === "string" ? part.slice(0, MAX_TEXT) : some(part, ["type", "name"])))
    .filter((part) => typeof part === "string" || part.type === "toolCall");
// What a tool returned stays here: nobody said it.
const messageOf = (message) => ({
  ...some(message, ["role", "timestamp", "stopReason", "name"]),
  content: message.role === "toolResult" ? [] : partsOf(message.content),
});

// The end of the history.
export function window(event) {
  const messages = event.messages ?? [];
  return { messages: messages.slice(-HISTORY).map(messageOf), historyLength: messages.length };
}

// All that a run added, however many tools it called, and the window: of a run beyond all bounds its questions and its end.
export function whole(event, run) {
  const all = event.messages ?? [];
  const last = all.findLastIndex(({ role }) => role === "user");
  const from = Math.max(0, all.length - MAX_RUN, Math.min(all.length - HISTORY, run?.before ?? last, Math.max(last, 0)));
  let room = MAX_CHARS;
  const bounded = (message) => {
    const told = messageOf(message);
    room -= JSON.stringify(told.content).length;
    return room < (told.role === "user" ? -MAX_CHARS / 4 : 0) ? { ...told, content: [] } : told;
  };
  const messages = all.slice(from).reverse().map(bounded).reverse();
  return { messages, historyLength: all.length, runStart: run?.before, interSession: run?.interSession };
}

// Runs under way by id, whichever registration of the plugin was told of them: the end of a session is told to another.
const underWay = (globalThis[Symbol.for("memrelay.runs")] ??= new Map());
const oldestGoes = (runs) => runs.size > MAX_RUNS && runs.delete(runs.keys().next().value);

// What people are called, by session and id: the host says it with a message that comes in, and not with the run that answers it.
const names = (globalThis[Symbol.for("memrelay.names")] ??= new Map());
const person = (session, sender) => JSON.stringify([session, String(sender)]);

export function heardName(event, ctx) {
  const { senderName, senderId } = event?.metadata ?? {};
  const [session, sender] = [event?.sessionKey ?? ctx?.sessionKey, event?.senderId ?? senderId ?? ctx?.senderId];
  if (!session || !sender || typeof senderName !== "string" || !senderName.trim()) return;
  const key = person(session, sender);
  names.delete(key);
  names.set(key, senderName.trim().slice(0, MAX_NAME));
  if (names.size > MAX_NAMES) names.delete(names.keys().next().value);
}

export const nameOf = (ctx) => names.get(person(ctx?.sessionKey, ctx?.senderId));

// When the runs of a session that are under way will have ended; nothing where none is.
export function runsOver(session) {
  const its = [...underWay.values()].filter((run) => session && run.session === session);
  return its.length ? Promise.all(its.map(({ over }) => over)) : undefined;
}

// What the beginning of a run tells that its end does not, kept here, so that a bridge that is replaced meanwhile needs not
// know it: how long the history was, and whether another session wrote.
//
// The host takes no new settings over while a plugin's run goes on, and does not try again. So where its file was changed
// during a run, it is given another look at it when the last run has ended: the file's time is set, and nothing in it. The
// host may let go of a run a while after it has ended, so it is given several; settings that it took over stop us.
export class Runs {
  known = new Map();
  looks = 0;

  constructor(file) {
    this.file = file;
  }

  began(ctx, event) {
    if (!ctx?.runId) return;
    if (!this.known.size) this.written ??= this.time();
    this.known.set(ctx.runId, {
      before: event.messages?.length ?? 0,
      interSession: ctx.inputProvenance?.kind === "inter_session",
    });
    const run = { session: ctx.sessionKey };
    run.over = new Promise((resolve) => (run.done = resolve));
    underWay.set(ctx.runId, run);
    [this.known, underWay].forEach(oldestGoes);
  }

  ended(ctx) {
    const run = this.known.get(ctx?.runId);
    this.known.delete(ctx?.runId);
    underWay.get(ctx?.runId)?.done();
    underWay.delete(ctx?.runId);
    if (!this.known.size) this.lookAfter(AFTER_RUN_MS);
    return run;
  }

  // Stopped, because the host took something over, or ends.
  stop() {
    clearTimeout(this.look);
    this.stopped = true;
  }

  lookAfter(pause) {
    clearTimeout(this.look);
    this.look = setTimeout(() => this.takenOver(pause), pause).unref();
  }

  takenOver(pause) {
    if (this.known.size || this.stopped) return;
    if (this.written === undefined || this.time() === this.written || this.looks >= MAX_LOOKS) {
      [this.written, this.looks] = [undefined, 0];
      return;
    }
    this.looks++;
    this.lookAfter(pause * 2);
    try {
      utimesSync(this.file, new Date(), new Date());
    } catch {
      // Another user's file: the host looks at it when it is changed next.
    }
  }

  time() {
    try {
      return statSync(this.file).mtimeMs;
    } catch {
      return undefined;
    }
  }
}
