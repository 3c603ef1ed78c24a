// memrelay for OpenClaw: hands the host's events to the bridge process and its answers back. Nothing is decided here.
import { spawn } from "node:child_process";
import { readFileSync } from "node:fs";
import { sharedBridge } from "./bridge.js";

const read = (name) => JSON.parse(readFileSync(new URL(name, import.meta.url), "utf8"));
const manifest = read("./openclaw.plugin.json");
const tools = read("./tools.json");
const { version } = read("./package.json");
// Without a kind the manifest is the side-car's: hooks alone, beside whichever plugin holds the memory slot.
const holdsSlot = manifest.kind === "memory";

const HISTORY = 60;
const MAX_TEXT = 20_000;
const GRACE_MS = 250;
const CAPTURE_MS = 5_000;
const TOOL_MS = 15_000;
const OFF_WORDS = new Set(["", "0", "false", "no", "off"]);
const CONTEXT = [
  "runId", "agentId", "sessionKey", "sessionId", "workspaceDir", "trigger", "channel", "channelId", "chatId", "chatType",
  "senderId", "requesterSenderId", "inputProvenance", "senderIsOwner", "gatewayClientScopes", "sandboxed",
];

const contextOf = (ctx = {}) => Object.fromEntries(CONTEXT.filter((key) => ctx[key] != null).map((key) => [key, ctx[key]]));
const textOf = (content) =>
  typeof content === "string"
    ? content.slice(0, MAX_TEXT)
    : (Array.isArray(content) ? content : [])
        .filter((part) => part?.type === "text" && typeof part.text === "string")
        .map(({ text }) => ({ type: "text", text: text.slice(0, MAX_TEXT) }));
const messagesOf = (messages) =>
  (messages ?? []).slice(-HISTORY).map(({ role, content, timestamp, stopReason }) => ({
    role,
    content: textOf(content),
    timestamp,
    stopReason,
  }));

function register(api) {
  const config = api.pluginConfig ?? {};
  const command = [config.command ?? process.env.MEMRELAY_GATEWAY_COMMAND ?? "memrelay-gateway"].flat();
  const disabled = !OFF_WORDS.has((process.env.MEMRELAY_DISABLE ?? "").trim().toLowerCase());
  const off = (flag, group) => disabled || config[flag] === false || config[group]?.enabled === false;
  const recalls = !off("autoRecall", "recall") && config.enabled !== false;
  const captures = !off("autoCapture", "capture");
  const hello = { host: "openclaw", pluginId: manifest.id, pluginVersion: version, config };
  const bridge = sharedBridge({ command: [...command, "bridge", "--host", "openclaw"], hello, logger: api.logger });

  const ask = (method, params, ctx, ms, signal) =>
    bridge.ask(method, { ...params, context: contextOf(ctx) }, ms ?? (bridge.info?.deadlineMs ?? 2000) + GRACE_MS, signal);
  // For hooks: whatever goes wrong, the turn goes on.
  const tryAsk = (...request) => ask(...request).catch((error) => bridge.tell("warn", error.message));

  const hooks = {
    before_prompt_build:
      recalls &&
      (async ({ prompt, messages }, ctx) => {
        const said = { prompt, messages: messagesOf(messages), historyLength: messages?.length ?? 0 };
        return (await tryAsk("turn.before", said, ctx))?.result ?? undefined;
      }),
    agent_end:
      captures &&
      (async ({ messages, success }, ctx) => {
        const said = { messages: messagesOf(messages), historyLength: messages?.length ?? 0, success };
        await tryAsk("turn.after", said, ctx, CAPTURE_MS);
      }),
  };
  for (const name of captures ? ["before_compaction", "before_reset", "session_end"] : []) {
    hooks[name] = async ({ messages, reason }, ctx) => {
      await tryAsk("session.event", { event: name, reason, messages: messagesOf(messages) }, ctx, CAPTURE_MS);
    };
  }
  for (const [name, hook] of Object.entries(hooks)) if (hook) api.on(name, hook);

  if (holdsSlot && !disabled) {
    registerTools(api, ask);
    registerCapability(api, ask, bridge);
  }
  registerCommands(api, ask);
  registerCli(api, command, config);
  api.registerService({
    id: manifest.id,
    start: () => {
      const named = [recalls && "auto-recall", captures && "auto-capture"].filter(Boolean).join(", ");
      api.logger.info(`memrelay: ${named ? `registered hooks: ${named}` : "no hooks registered"}`);
      bridge.start();
      // Not awaited: a relayer that does not answer must not hold up the gateway's start.
      ask("health", {}, {}, TOOL_MS).then(
        ({ ok, text }) => api.logger[ok ? "info" : "warn"](`memrelay: ${text}`),
        (error) => bridge.tell("warn", `health check failed: ${error.message}`),
      );
    },
    stop: async () => {
      await bridge.stop();
      api.logger.info("memrelay: stopped");
    },
  });
}

function registerTools(api, ask) {
  for (const tool of tools.tools) {
    const make = (ctx) => ({
      ...tool,
      catalogMode: "direct-only",
      execute: async (_id, params, signal) => {
        const call = ask("tool.call", { name: tool.name, arguments: params }, ctx, TOOL_MS, signal);
        const failed = (error) => ({ text: `Memory is not available: ${error.message}`, details: { failed: true } });
        const { text, details } = await call.catch(failed);
        return { content: [{ type: "text", text }], details };
      },
    });
    api.registerTool(make, { names: [tool.name] });
  }
}

function registerCapability(api, ask, bridge) {
  const has = (available, name) => [...(available ?? [])].includes(name);
  api.registerMemoryCapability({
    promptBuilder: ({ availableTools }) => (has(availableTools, "memory_search") ? tools.prompt : []),
    runtime: {
      resolveMemoryBackendConfig: () => ({ backend: "builtin" }),
      getMemorySearchManager: async ({ agentId }) => {
        const ctx = { agentId };
        const search = (query, options) => ask("memory.search", { query, options }, ctx, TOOL_MS, options?.signal);
        return {
          manager: {
            search: async (query, options = {}) => (await search(query, options)).hits,
            readFile: (place) => ask("memory.read", { place }, ctx, TOOL_MS),
            status: () => ({ backend: "builtin", provider: "memrelay", model: bridge.info?.url ?? "", sources: ["memory"] }),
            probeEmbeddingAvailability: async () => ask("memory.probe", {}, ctx, TOOL_MS),
            probeVectorAvailability: async () => (await ask("memory.probe", {}, ctx, TOOL_MS)).ok,
          },
        };
      },
    },
  });
}

function registerCommands(api, ask) {
  const handler = async (ctx) => {
    const { text } = await ask("command", { args: ctx.args ?? "" }, ctx, TOOL_MS).catch((error) => ({ text: error.message }));
    return { text };
  };
  // The host's own active-memory has the second name where it is switched on.
  const taken = api.config?.plugins?.entries?.["active-memory"]?.enabled === true;
  for (const name of taken ? ["memory"] : ["memory", "active-memory"]) {
    const description = "Show or switch this session's long-term memory: status, on, off, why; --global for all.";
    api.registerCommand({ name, description, acceptsArgs: true, exposeSenderIsOwner: true, handler });
  }
}

// `openclaw memrelay ...` is `memrelay-gateway ...` with this plugin's settings; what it prints is passed on untouched.
function registerCli(api, command, { url, key, agent }) {
  const env = { ...process.env };
  // The host resolves references for its gateway, not for its commands.
  const secret = key?.source === "env" ? process.env[key.id] : key;
  for (const [name, value] of Object.entries({ MEMRELAY_URL: url, MEMRELAY_SECRET: secret, MEMRELAY_AGENT: agent })) {
    if (typeof value === "string" && value) env[name] = value;
  }
  const [{ name, description }] = manifest.cliCommands;
  const run = (args) =>
    new Promise((resolve) => {
      const child = spawn(command[0], [...command.slice(1), ...args], { stdio: "inherit", env });
      child.on("error", () => resolve(127));
      child.on("exit", (code) => resolve(code ?? 1));
    });
  const registrar = ({ program }) => {
    const group = program.command(name).description(description).argument("[arguments...]").allowUnknownOption();
    group.helpOption(false).passThroughOptions?.();
    group.action(async (args) => {
      // Another secret would be another account: better no answer than a wrong one.
      const unresolved = key && typeof secret !== "string" && !env.MEMRELAY_SECRET;
      if (unresolved) console.error(`config.key is a reference that only the gateway resolves: set MEMRELAY_SECRET for ${name}`);
      process.exitCode = unresolved ? 2 : await run(args.length ? args : ["--help"]);
    });
  };
  api.registerCli(registrar, { descriptors: manifest.cliCommands });
}

export default { id: manifest.id, name: manifest.name, description: manifest.description, register };
