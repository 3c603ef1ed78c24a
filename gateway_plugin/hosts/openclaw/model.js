// The host's own language model, lent to the bridge: with the host's key, its choice of a model and its policy.

// A bridge's pipe belongs to the operation that started it. After a reload of the configuration that one is over, and the host
// asks no model for it; nor for a turn that has ended. It keeps a context of its own for what belongs to neither.
const apart = (run) => {
  const context = globalThis[Symbol.for("openclaw.detachedAsyncContext")];
  return context ? context.runInAsyncScope(run) : run();
};

const ACTIVE = "memrelay.active-recall";
// Of a model that is asked in this way the host does not tell the tokens.
const CHARS_PER_TOKEN = 4;
// The host has no such call here, or not for the program that runs this agent's model: nobody was asked.
const NOT_OFFERED = ["unsupported", "OPENCLAW_SUBAGENT_RUNTIME_REQUEST_SCOPE"];

// An agent's own model, through the host's call for that: without tools, at the host's expense, with a key that stays there.
async function askAgents(api, agentId, { system, prompt, deadlineMs }, signal) {
  const asked = { agentId, message: prompt, timeoutMs: deadlineMs, signal, ...(system && { extraSystemPrompt: system }) };
  const { text } = await api.runtime.subagent.complete(asked);
  const cfg = api.runtime.config?.current?.() ?? api.config;
  const { provider, model } = api.runtime.modelConfig?.resolveDefaultModelForAgent?.({ cfg, agentId }) ?? {};
  const tokens = Math.ceil([system, prompt, text].join("").length / CHARS_PER_TOKEN);
  return { text, tokens, model: model ? `${provider}/${model}` : `the model of ${agentId}` };
}

// Another agent's model, or a named one, only where the operator lets the plugin choose.
function asking(api, pluginId) {
  const policy = api.config?.plugins?.entries?.[pluginId]?.llm ?? {};
  const allowed = policy.allowAgentIdOverride === true;
  // That call checks none of these settings: an operator who has set one has decided who may be asked.
  const decided = policy.allowAgentIdOverride != null || policy.allowedCompletionModels != null;
  return async (params, signal) => {
    const { system, prompt, purpose, maxTokens, effort, agentId, model } = params;
    const { entries = {}, defaults } = (api.runtime.config?.current?.() ?? api.config)?.agents ?? {};
    const isOther = agentId in entries && agentId !== (defaults?.systemAgent?.agentId ?? Object.keys(entries)[0]);
    if (purpose === ACTIVE && isOther && !model && !decided && api.runtime.subagent?.complete) {
      try {
        return await askAgents(api, agentId, params, signal);
      } catch (error) {
        if (!NOT_OFFERED.includes(error?.code)) throw Object.assign(new Error("failed"), { code: "LLM_COMPLETION_FAILED" });
      }
    }
    const answer = await api.runtime.llm.complete({
      messages: [{ role: "user", content: prompt }],
      ...(system && { systemPrompt: system }),
      ...(effort && { reasoning: effort }),
      ...(model && { model }),
      ...(allowed && agentId in entries && { agentId }),
      maxTokens,
      purpose,
      signal,
    });
    if (!answer.text?.trim() && answer.stopReason !== "stop") throw Object.assign(new Error("empty"), { code: "LLM_EMPTY" });
    const { totalTokens, inputTokens = 0, outputTokens = 0, costUsd } = answer.usage ?? {};
    const tokens = totalTokens ?? inputTokens + outputTokens;
    return { text: answer.text, model: `${answer.provider}/${answer.model}`, tokens, costUsd };
  };
}

// Lets a bridge ask the model. Only a code says why it gave no answer: an error's text may hold anything.
export function lendModel(bridge, api, pluginId) {
  if (api.registrationMode !== "full" || !api.runtime?.llm?.complete) return;
  const complete = asking(api, pluginId);
  const serving = new Map();
  bridge.serve = async ({ id, method, params }, child) => {
    if (method === "cancel") return serving.get(params?.id)?.abort();
    const write = (message) => child.stdin.writable && child.stdin.write(`${JSON.stringify({ jsonrpc: "2.0", id, ...message })}\n`);
    const asked = new AbortController();
    const timer = setTimeout(() => asked.abort(), params.deadlineMs).unref();
    const gone = () => asked.abort();
    child.once("exit", gone);
    serving.set(id, asked);
    try {
      if (method !== "model.complete") throw Object.assign(new Error(method), { code: "UNKNOWN_METHOD" });
      write({ result: await apart(() => complete(params, asked.signal)) });
    } catch (error) {
      const code = asked.signal.aborted ? "LLM_TIMEOUT" : String(error?.code ?? "");
      write({ error: { code: -32005, message: "the host gave no answer", data: { code } } });
    } finally {
      clearTimeout(timer);
      child.off("exit", gone);
      serving.delete(id);
    }
  };
}
