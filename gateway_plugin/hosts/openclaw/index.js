// memrelay for OpenClaw: hands the host's events to the bridge process and its answers back. Nothing is decided here.
import { spawnSync } from "node:child_process";
import { existsSync, readFileSync, realpathSync } from "node:fs";
import { homedir } from "node:os";
import { dirname, join } from "node:path";
import { cannotRun, sharedBridge } from "./bridge.js";
import { registerCommands, showLines } from "./chat.js";
import { flushPlan } from "./flush.js";
import { keptIn, taken } from "./kept.js";
import { lendModel } from "./model.js";
import { Runs, heardName, nameOf, runsOver, some, whole, window } from "./runs.js";
import { classifyWorkspaceMemoryPaths, listArtifacts, originOf, prompted } from "./workspace.js";

const read = (name) => JSON.parse(readFileSync(new URL(name, import.meta.url), "utf8"));
const manifest = read("./openclaw.plugin.json");
const tools = read("./tools.json");
const packed = read("./package.json").memrelay?.command; // the program that made the package
// Without a kind the manifest is the side-car's: hooks alone, beside whichever plugin holds the memory slot.
const holdsSlot = manifest.kind === "memory";

const GRACE_MS = 250;
const CAPTURE_MS = 5_000;
const HEALTH_MS = 30_000;
const TOOL_MS = 15_000;
const PROMPT_MS = 1_000;
const MAKING_MS = 30_000;
// The host ends a hook before a turn after 15 s, unless the plugin says that it may take longer.
const HOST_LIMIT_MS = 15_000;
const CONTEXT = [
  "runId", "agentId", "sessionKey", "sessionId", "workspaceDir", "trigger", "channel", "channelId", "chatId", "chatType",
  "senderId", "requesterSenderId", "messageChannel", "inputProvenance", "senderIsOwner", "gatewayClientScopes", "sandboxed", "modelId",
  "conversationRecall", "activeProjectKeys",
];

const contextOf = (ctx) => ({ ...some(ctx, CONTEXT), senderName: nameOf(ctx) });
function stateFolder(api) {
  const profile = (process.env.OPENCLAW_PROFILE ?? "").trim();
  const name = profile && profile.toLowerCase() !== "default" ? `.openclaw-${profile}` : ".openclaw";
  const usual = process.env.OPENCLAW_STATE_DIR || join(process.env.OPENCLAW_HOME || homedir(), name);
  try {
    return api.runtime?.state?.resolveStateDir?.() ?? usual;
  } catch {
    // A registration for the names of commands alone has no runtime, and asking for it fails.
    return usual;
  }
}
// What runs the host, which host it is, and where it has the files that it writes into a new workspace: above its program. Commands
// and the bridge inherit it.
function tellHost() {
  process.env.MEMRELAY_OPENCLAW_NODE = process.execPath;
  try {
    for (let folder = dirname(realpathSync(process.argv[1])); folder !== dirname(folder); folder = dirname(folder)) {
      const templates = join(folder, "docs", "reference", "templates");
      if (existsSync(join(folder, "package.json")) && existsSync(templates)) {
        process.env.MEMRELAY_OPENCLAW_TEMPLATES = templates;
        process.env.MEMRELAY_OPENCLAW_VERSION = JSON.parse(readFileSync(join(folder, "package.json"), "utf8")).version;
        return;
      }
    }
  } catch {
    // Without them the host's own lines are remembered as a person's.
  }
}
// All times that were set together are more than any of them, in whichever spelling they were set.
const timesIn = (config) =>
  Object.entries(config ?? {}).reduce((sum, [key, value]) => {
    if (value && typeof value === "object") return sum + timesIn(value);
    return sum + (/^(deadlineMs|timeoutMs|setupGraceTimeoutMs)$/.test(key) && value > 0 ? Number(value) : 0);
  }, 0);

// A host that is too old for the memory slot's capability has no place behind the prompt either: before it, then.
const placed = (api, result) => {
  if (api.registerMemoryCapability || !result?.appendContext) return result;
  const { appendContext: prependContext, ...others } = result;
  return { ...others, prependContext };
};

function register(api) {
  const config = api.pluginConfig ?? {};
  const command = [config.command ?? process.env.MEMRELAY_GATEWAY_COMMAND ?? packed ?? "memrelay-gateway"].flat();
  const disabled = !/^(0|false|no|off)?$/i.test((process.env.MEMRELAY_DISABLE ?? "").trim());
  const isOn = (flag, group) => !disabled && config[flag] !== false && config[group]?.enabled !== false;
  const recalls = isOn("autoRecall", "recall") && config.enabled !== false;
  const captures = isOn("autoCapture", "capture");
  const hello = { host: "openclaw", pluginId: manifest.id, pluginVersion: manifest.version, config };
  const bridge = sharedBridge({ command: [...command, "bridge", "--host", "openclaw"], hello, logger: api.logger });
  lendModel(bridge, api, manifest.id);
  tellHost();
  const state = stateFolder(api);
  const kept = keptIn(join(state, manifest.id, "kept-turns"), bridge.log);
  // Asked of a bridge that is up: one that is still starting says nothing about the relayer.
  const healthy = () => {
    const failed = (error) => ({ ok: false, text: `health check failed: ${error.message}` });
    const asked = bridge.ask("health", { context: {} }, HEALTH_MS).catch(failed);
    asked.then(({ ok, text }) => bridge.stopped || bridge.log.tell(ok ? "info" : "warn", text));
  };
  bridge.up = ({ keptKey, problem }) => {
    kept.ready(bridge, keptKey);
    if (!problem) healthy();
  };
  const runs = new Runs(process.env.OPENCLAW_CONFIG_PATH || join(state, "openclaw.json"));
  const ask = (method, params, ctx, ms = TOOL_MS, signal) =>
    bridge.ask(method, { ...params, context: contextOf(ctx) }, ms, signal);
  // The host's own switch of memory, for all agents or one.
  const searches = (agentId) => {
    const now = api.runtime?.config?.current?.() ?? api.config;
    return (now?.agents?.entries?.[agentId]?.memory?.search?.enabled ?? now?.memory?.search?.enabled) !== false;
  };
  // For hooks: whatever goes wrong, the turn goes on.
  const hook = (name, method, made, options) =>
    api.on(
      name,
      async (event, ctx) => {
        try {
          const said = some(event, ["prompt", "success", "reason", "assistantTexts"]);
          return placed(api, (await made({ event: name, ...said }, event, ctx, method))?.result) ?? undefined;
        } catch (error) {
          bridge.log.tell("warn", error.message);
        }
      },
      options,
    );
  const told = (said, event, ctx, method) => ask(method, { ...said, ...window(event) }, ctx, CAPTURE_MS);
  const recalled = (said, event, ctx, method) => {
    runs.began(ctx, event);
    const known = { hostSearch: searches(ctx?.agentId), prompted: prompted(ctx?.workspaceDir) };
    const params = { ...said, ...window(event), ...known };
    const asked = ask(method, params, ctx, (bridge.info?.deadlineMs ?? 2000) + GRACE_MS);
    const shown = (lines) => recalls && showLines(api, manifest.id, ctx, lines);
    asked.then((found) => shown(found?.lines)).catch(() => shown());
    return asked;
  };
  const captured = (said, event, ctx, method) => {
    const run = runs.ended(ctx);
    return kept.hand(bridge, method, { ...said, ...whole(event, run), context: contextOf(ctx) }, ctx?.sessionKey ?? "");
  };
  const noted = (_said, event, ctx) => runs.began(ctx, event);
  // The end of a session comes after its turns: behind one that waits, it waits, too.
  const happened = async (said, event, ctx, method) => {
    const params = { ...said, ...window(event) };
    const later = () => kept.hand(bridge, method, { ...params, context: contextOf(ctx) }, ctx?.sessionKey ?? "");
    const tell = () => (kept.idle ? ask(method, params, ctx, CAPTURE_MS).then(taken).catch(later) : later());
    // A run's end may be told after its session's: then that is told once more, for what the run said.
    const again = said.event === "before_compaction" ? undefined : runsOver(ctx?.sessionKey);
    again?.then(tell).catch((error) => bridge.log.tell("warn", error.message));
    return tell();
  };

  const settles = captures && config.capture?.strategy === "debounce";
  const limit = { timeoutMs: Math.max(HOST_LIMIT_MS, timesIn(config)) + 2 * GRACE_MS + 1_500 };
  if (recalls || captures) hook("before_prompt_build", "turn.before", recalls || settles ? recalled : noted, limit);
  if (captures) api.on("message_received", heardName);
  if (captures) hook("agent_end", "turn.after", captured);
  else if (recalls) hook("agent_end", "turn.after", (_said, _event, ctx) => void runs.ended(ctx));
  if (settles) hook("llm_output", "turn.heard", told);
  if (recalls || captures) hook("session_start", "session.event", told);
  for (const name of captures ? ["before_compaction", "before_reset", "session_end"] : []) hook(name, "session.event", happened);
  const offers = (what) => holdsSlot && !disabled && config.offer?.[what] !== false;
  if (offers("tools")) registerTools(api, ask);
  if (holdsSlot && !disabled) registerCapability(api, ask, bridge, offers("section") ? tools.prompt : []);
  // The skill asks for this variable: it is not offered by a gateway whose memory is switched off, or whose settings say so.
  if (api.registrationMode === "full" && offers("skill")) process.env.MEMRELAY_SKILL = "on";
  else if (api.registrationMode === "full") delete process.env.MEMRELAY_SKILL;
  registerCommands(api, manifest.id, ask, holdsSlot && !coreIsLoaded(api, config));
  registerCli(api, command, config);
  const named = [recalls && "auto-recall", captures && "auto-capture"].filter(Boolean).join(", ");
  api.registerService({
    id: manifest.id,
    start: () => {
      bridge.log.tell("info", `version ${manifest.version} of the plugin starts`);
      bridge.log.tell("info", `${named ? `registered hooks: ${named}` : "no hooks registered"}`);
      // Not awaited: a relayer that does not answer must not hold up the gateway's start.
      bridge.start();
    },
    stop: async () => {
      kept.saveAll();
      runs.stop();
      await bridge.stop();
    },
  });
}

function registerTools(api, ask) {
  for (const tool of tools.tools) {
    // Standing intents are the owner's, as in the host's own memory.
    const make = (ctx) => (tool.name === "intent" && ctx?.senderIsOwner !== true ? null : definition(ctx));
    const definition = (ctx) => ({
      ...tool,
      catalogMode: "direct-only",
      execute: async (_id, params, signal) => {
        const failed = (error) => ({ text: `Memory is not available: ${error.message}`, details: { failed: true } });
        const call = ask("tool.call", { name: tool.name, arguments: params }, ctx, TOOL_MS, signal);
        const { text, details } = await call.catch(failed);
        return { content: [{ type: "text", text }], details };
      },
    });
    api.registerTool(make, { names: [tool.name] });
  }
}

// The sessions whose system prompts are being made; shared by all registrations of the plugin in one process. OpenClaw asks for the
// lines of a project right after the section, without naming the session.
const making = (globalThis[Symbol.for("memrelay.making")] ??= []);
const madeLately = (agentId) => {
  while (making[0]?.at < Date.now() - MAKING_MS) making.shift();
  return making.filter((one) => one.agentId === agentId).map(({ key }) => key);
};

function registerCapability(api, ask, bridge, section) {
  const manager = (agentId) => ({
    search: async (query, { signal, activeProjectKeys, ...options } = {}) =>
      (await ask("memory.search", { query, options }, { agentId, activeProjectKeys }, TOOL_MS, signal)).hits,
    readFile: (place) => ask("memory.read", { place }, { agentId }),
    listCuratedProjectCandidates: async ({ activeProjectKeys, limit = 48 }) => {
      const asked = { sessions: section.length ? madeLately(agentId) : [] };
      const { lines, workspace } = await ask("memory.project", asked, { agentId, activeProjectKeys }, PROMPT_MS);
      const provenance = lines.length ? { originClass: await originOf(workspace, "MEMORY.md") } : {};
      return lines.slice(0, limit).map((line) => ({ ...line, provenance }));
    },
    status: () => ({ backend: "builtin", provider: "memrelay", model: bridge.info?.url ?? "", sources: ["memory", "sessions"] }),
    probeEmbeddingAvailability: () => ask("health", {}, { agentId }),
    probeVectorAvailability: async () => (await ask("health", {}, { agentId })).ok,
  });
  // Hosts before it existed have hooks and tools all the same.
  api.registerMemoryCapability?.({
    deterministicRecallToolName: "memory_search",
    supportsPrivateTranscriptRecall: true,
    flushPlanResolver: flushPlan,
    publicArtifacts: { listArtifacts },
    promptBuilder: ({ availableTools, agentId, agentSessionKey: key = "" }) => {
      making.push({ at: Date.now(), agentId, key });
      madeLately(agentId);
      return [...(availableTools ?? [])].includes("memory_search") ? section : [];
    },
    runtime: {
      resolveMemoryBackendConfig: () => ({ backend: "builtin" }),
      supportsWorkspaceMemoryReadSources: true,
      classifyWorkspaceMemoryPaths,
      getMemorySearchManager: async ({ agentId }) => ({ manager: manager(agentId) }),
    },
  });
}

// Next to the plugin in the slot the host loads memory-core for its dreaming alone.
function coreIsLoaded(api, config) {
  const { allow, entries } = api.config?.plugins ?? {};
  const dreams = !holdsSlot || config.dreaming?.enabled !== false;
  return dreams && entries?.["memory-core"]?.enabled !== false && !(allow?.length && !allow.includes("memory-core"));
}

// `openclaw memrelay ...` and, where memory-core is not loaded, `openclaw memory ...` are `memrelay-gateway ...` with our settings.
function registerCli(api, command, config) {
  const env = { ...process.env, MEMRELAY_OPENCLAW_CONFIG: JSON.stringify(config) };
  const run = (args) => {
    const rest = [...command.slice(1), "openclaw", "run", "--", ...args];
    const { status, error } = spawnSync(command[0], rest, { stdio: "inherit", env });
    if (error) console.error(cannotRun(command[0], manifest.id, error));
    process.exitCode = error ? 127 : (status ?? 1);
  };
  const registrar = ({ name, description }) => ({ program }) => {
    const group = program.command(name).description(description).argument("[arguments...]").allowUnknownOption();
    group.helpOption(false).action((args) => run(name === "memory" ? [name, ...args] : args)).passThroughOptions?.();
  };
  const ours = manifest.cliCommands.slice(0, coreIsLoaded(api, config) ? 1 : undefined);
  for (const one of ours) api.registerCli(registrar(one), { descriptors: [one] });
}

export default { id: manifest.id, name: manifest.name, description: manifest.description, register };
