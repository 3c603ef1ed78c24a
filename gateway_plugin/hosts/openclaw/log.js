// What goes into the host's log, and what a program prints: both without an end, and neither may fill a log or a memory.

const MINUTE_MS = 60_000;
// Of a minute: what tells of recalls must not take the room of what warns.
const ROOM = { info: 120, warn: 60, error: 60 };
const MAX_KNOWN = 500;

// A line is said when it is new, and counted while it comes again; what has no room is counted, too. Both are told when a
// minute is over, for as long as the host runs.
export class Log {
  lines = new Map();
  room = { ...ROOM };
  leftOut = 0;

  constructor(logger) {
    this.logger = logger;
  }

  // Of what a program prints, `limited` leaves out what a minute has no room for; what we say ourselves is always told.
  tell(level, sentence, { limited = false } = {}) {
    this.timer ??= setTimeout(() => this.sum(), MINUTE_MS).unref();
    const known = this.lines.get(sentence);
    if (known) known.again++;
    else if (limited && this.room[level] <= 0) this.leftOut++;
    else {
      if (limited) this.room[level]--;
      if (this.lines.size < MAX_KNOWN) this.lines.set(sentence, { level, again: 0 });
      this.say(level, sentence);
    }
  }

  // Ends a minute, or all of it.
  sum() {
    clearTimeout(this.timer);
    this.timer = undefined;
    for (const [sentence, line] of this.lines) {
      if (!line.again) {
        this.lines.delete(sentence);
        continue;
      }
      this.say(line.level, `${sentence} (repeated ${line.again} ${line.again === 1 ? "time" : "times"})`);
      line.again = 0;
    }
    if (this.leftOut) this.say("warn", `${this.leftOut} more lines of the last minute were left out`);
    this.leftOut = 0;
    this.room = { ...ROOM };
    // What comes every minute is told once a minute: it stays known until one passes without it.
    if (this.lines.size) this.timer = setTimeout(() => this.sum(), MINUTE_MS).unref();
  }

  say(level, sentence) {
    this.logger[level]?.(`memrelay: ${sentence}`);
  }
}

// Reads a stream line by line, holding no more than `limit` bytes: `take` is given a line's beginning, and how many bytes of
// it were thrown away; `endless` is told so while there is no end yet.
export function eachLine(stream, limit, take, endless = () => {}) {
  let parts = [];
  let held = 0;
  let gone = 0;
  const keep = (part) => {
    const kept = part.subarray(0, limit - held);
    if (kept.length) parts.push(kept);
    held += kept.length;
    gone += part.length - kept.length;
    if (part.length > kept.length) endless(gone);
  };
  const ends = () => {
    const line = Buffer.concat(parts).toString("utf8").replace(/\r$/, "");
    const lost = gone;
    [parts, held, gone] = [[], 0, 0];
    if (line || lost) take(line, lost);
  };
  stream.on("data", (chunk) => {
    let from = 0;
    for (let to = chunk.indexOf(10); to >= 0; to = chunk.indexOf(10, from)) {
      keep(chunk.subarray(from, to));
      ends();
      from = to + 1;
    }
    keep(chunk.subarray(from));
  });
  stream.on("end", ends);
}
