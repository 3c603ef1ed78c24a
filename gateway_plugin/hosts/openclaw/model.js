// The host's own language model, lent to the bridge: with the host's key, its choice of a model and its policy.

// A bridge's pipe belongs to the operation that started it. After a reload of the configuration that one is over, and the host
// asks no model for it; nor for a turn that has ended. It keeps a context of its own for what belongs to neither.
const apart = (run) => {
  const context = globalThis[Symbol.for("openclaw.detachedAsyncContext")];
  return context ? context.runInAsyncScope(run) : run();
};

// Another agent's model, or a named one, only where the operator lets the plugin choose.
function asking(api, pluginId) {
  const policy = api.config?.plugins?.entries?.[pluginId]?.llm ?? {};
  const agents = api.config?.agents?.entries ?? {};
  return async ({ system, prompt, purpose, maxTokens, effort, agentId, model }, signal) => {
    const answer = await api.runtime.llm.complete({
      messages: [{ role: "user", content: prompt }],
      ...(system && { systemPrompt: system }),
      ...(effort && { reasoning: effort }),
      ...(model && { model }),
      ...(policy.allowAgentIdOverride === true && agentId in agents && { agentId }),
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
      write({ error: { code: -32005, message: "the host gave no answer", data: { code: String(error?.code ?? "") } } });
    } finally {
      clearTimeout(timer);
      child.off("exit", gone);
      serving.delete(id);
    }
  };
}
