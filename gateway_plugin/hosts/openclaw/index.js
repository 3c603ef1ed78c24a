// memrelay for OpenClaw: hands the host's events to the bridge process and its answers back. Nothing is decided here.
import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { cannotRun, sharedBridge } from "./bridge.js";
import { registerCommands, showLines } from "./chat.js";
import { lendModel } from "./model.js";

const read = (name) => JSON.parse(readFileSync(new URL(name, import.meta.url), "utf8"));
const manifest = read("./openclaw.plugin.json");
const tools = read("./tools.json");
const packed = read("./package.json").memrelay?.command; // the program that made the package
// Without a kind the manifest is the side-car's: hooks alone, beside whichever plugin holds the memory slot.
const holdsSlot = manifest.kind === "memory";

const HISTORY = 60;
const MAX_TEXT = 20_000;
const GRACE_MS = 250;
const CAPTURE_MS = 5_000;
const TOOL_MS = 15_000;
const CONTEXT = [
  "runId", "agentId", "sessionKey", "sessionId", "workspaceDir", "trigger", "channel", "channelId", "chatId", "chatType",
  "senderId", "requesterSenderId", "inputProvenance", "senderIsOwner", "gatewayClientScopes", "sandboxed", "modelId",
];

const some = (given, keys) => Object.fromEntries(keys.filter((key) => given?.[key] != null).map((key) => [key, given[key]]));
// What was said, and the names of tools that were called.
const partsOf = (content) =>
  [content]
    .flat()
    .map((part) => (part?.type === "text" ? part.text : part))
    .map((part) => (typeof part === "string" ? part.slice(0, MAX_TEXT) : some(part, ["type", "name"])))
    .filter((part) => typeof part === "string" || part.type === "toolCall");
const eventOf = (event) => ({
  ...some(event, ["prompt", "success", "reason", "assistantTexts"]),
  messages: (event.messages ?? []).slice(-HISTORY).map((message) => ({
    ...some(message, ["role", "timestamp", "stopReason"]),
    content: partsOf(message.content),
  })),
  historyLength: event.messages?.length ?? 0,
});

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
  const ask = (method, params, ctx, ms = TOOL_MS, signal) =>
    bridge.ask(method, { ...params, context: some(ctx, CONTEXT) }, ms, signal);
  // For hooks: whatever goes wrong, the turn goes on.
  const hook = (name, method, ms) =>
    api.on(name, async (event, ctx) => {
      const said = { event: name, ...eventOf(event) };
      const asked = ask(method, said, ctx, ms ?? (bridge.info?.deadlineMs ?? 2000) + GRACE_MS);
      const told = await asked.catch((error) => bridge.tell("warn", error.message));
      if (name === "before_prompt_build" && recalls) showLines(api, manifest.id, ctx, told?.lines);
      return told?.result ?? undefined;
    });

  const settles = captures && config.capture?.strategy === "debounce";
  if (recalls || settles) hook("before_prompt_build", "turn.before");
  if (captures) hook("agent_end", "turn.after", CAPTURE_MS);
  if (settles) hook("llm_output", "turn.heard", CAPTURE_MS);
  if (recalls || captures) hook("session_start", "session.event", CAPTURE_MS);
  for (const name of captures ? ["before_compaction", "before_reset", "session_end"] : []) hook(name, "session.event", CAPTURE_MS);
  const offers = (what) => holdsSlot && !disabled && config.offer?.[what] !== false;
  if (offers("tools")) registerTools(api, ask);
  if (holdsSlot && !disabled) registerCapability(api, ask, bridge, offers("section") ? tools.prompt : []);
  // The skill asks for this variable: it is not offered by a gateway whose memory is switched off, or whose settings say so.
  if (api.registrationMode === "full" && offers("skill")) process.env.MEMRELAY_SKILL = "on";
  else if (api.registrationMode === "full") delete process.env.MEMRELAY_SKILL;
  registerCommands(api, manifest.id, ask);
  registerCli(api, command, config);
  const named = [recalls && "auto-recall", captures && "auto-capture"].filter(Boolean).join(", ");
  api.registerService({
    id: manifest.id,
    start: () => {
      api.logger.info(`memrelay: ${named ? `registered hooks: ${named}` : "no hooks registered"}`);
      // Not awaited: a relayer that does not answer must not hold up the gateway's start.
      const failed = (error) => ({ ok: false, text: `health check failed: ${error.message}` });
      ask("health", {}, {}).catch(failed).then(({ ok, text }) => bridge.tell(ok ? "info" : "warn", text));
    },
    stop: () => bridge.stop(),
  });
}

function registerTools(api, ask) {
  for (const tool of tools.tools) {
    const make = (ctx) => ({
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

function registerCapability(api, ask, bridge, section) {
  const manager = (agentId) => ({
    search: async (query, { signal, ...options } = {}) =>
      (await ask("memory.search", { query, options }, { agentId }, TOOL_MS, signal)).hits,
    readFile: (place) => ask("memory.read", { place }, { agentId }),
    status: () => ({ backend: "builtin", provider: "memrelay", model: bridge.info?.url ?? "", sources: ["memory"] }),
    probeEmbeddingAvailability: () => ask("health", {}, { agentId }),
    probeVectorAvailability: async () => (await ask("health", {}, { agentId })).ok,
  });
  api.registerMemoryCapability({
    promptBuilder: ({ availableTools }) => ([...(availableTools ?? [])].includes("memory_search") ? section : []),
    runtime: {
      resolveMemoryBackendConfig: () => ({ backend: "builtin" }),
      getMemorySearchManager: async ({ agentId }) => ({ manager: manager(agentId) }),
    },
  });
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
  const { allow, entries } = api.config?.plugins ?? {};
  const core = entries?.["memory-core"]?.enabled !== false && !(allow?.length && !allow.includes("memory-core"));
  for (const one of manifest.cliCommands.slice(0, core ? 1 : undefined)) api.registerCli(registrar(one), { descriptors: [one] });
}

export default { id: manifest.id, name: manifest.name, description: manifest.description, register };
