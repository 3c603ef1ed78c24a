// The turn in which the host has the agent write down what lasts, before it shortens a conversation. Whether and when is up to
// the host's settings, agents.defaults.compaction.memoryFlush; the file is the day's, which memory follows.
const RESERVE_TOKENS = 20_000;
const SOFT_TOKENS = 4_000;
const TRANSCRIPT_BYTES = 2 * 1024 * 1024;
const UNITS = { b: 1, kb: 1024, mb: 1024 ** 2, gb: 1024 ** 3 };

const count = (value) => (Number.isFinite(value) && value >= 0 ? Math.floor(value) : undefined);

function bytes(value) {
  const [, number, unit = "b"] = /^\s*([\d.]+)\s*([kmg]?b)?\s*$/i.exec(String(value ?? "")) ?? [];
  return number === undefined ? undefined : count(Number(number) * UNITS[unit.toLowerCase()]);
}

// The date in the person's time zone.
function day(now, timeZone) {
  try {
    return new Intl.DateTimeFormat("sv-SE", { timeZone, dateStyle: "short" }).format(now);
  } catch {
    return new Intl.DateTimeFormat("sv-SE", { dateStyle: "short" }).format(now);
  }
}

export function flushPlan({ cfg, nowMs, contextWindowTokens } = {}) {
  const defaults = cfg?.agents?.defaults;
  const wanted = defaults?.compaction?.memoryFlush ?? {};
  if (wanted.enabled === false) return null;
  const whole = count(contextWindowTokens);
  const reserve = whole ? Math.min(RESERVE_TOKENS, Math.floor(whole / 2)) : RESERVE_TOKENS;
  const soft = count(wanted.softThresholdTokens) ?? SOFT_TOKENS;
  const now = new Date(nowMs ?? Date.now());
  const date = day(now, defaults?.userTimezone);
  const relativePath = `memory/${date}.md`;
  const rules = [
    `Append to ${relativePath}, and create it if it is missing; change nothing that stands there.`,
    "Write short bullets, each a fact, decision or preference that will matter in later conversations.",
    "All other files are for reading only.",
    "If there is nothing to write, answer NO_REPLY.",
  ].join(" ");
  return {
    softThresholdTokens: whole ? Math.min(soft, Math.floor((whole - reserve) / 2)) : soft,
    forceFlushTranscriptBytes: bytes(wanted.forceFlushTranscriptBytes) ?? TRANSCRIPT_BYTES,
    reserveTokensFloor: reserve,
    model: wanted.model?.trim?.() || undefined,
    prompt: `This conversation is about to be shortened. Write down what lasts. ${rules}\nCurrent time: ${now.toISOString()}`,
    systemPrompt: `In this turn you only keep notes for later. ${rules}`,
    relativePath,
  };
}
