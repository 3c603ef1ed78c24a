// What a person at the chat sees and types: the lines behind an answer, and the commands.
const UNAVAILABLE = ["🧩 memory: unavailable"];
const TRACE = "🔎 ";

// The lines that the host shows behind an answer: how recall went after /verbose on, what it found after /trace on.
// Takes those of a turn in place of those of the turn before; none when the bridge did not answer.
// The host keeps them in the clear with the session: what quotes memories goes there only while somebody asks to see it.
export function showLines(api, pluginId, { agentId, sessionKey }, lines = UNAVAILABLE) {
  const sessions = api.runtime?.agent?.session;
  if (!sessionKey || !sessions?.patchSessionEntry) return;
  const entriesOf = (entry) => (Array.isArray(entry?.pluginDebugEntries) ? entry.pluginDebugEntries : []);
  const update = (entry) => {
    const traced = entry.traceLevel === "on" || entry.traceLevel === "raw";
    const shown = lines.filter((line) => traced || !line.startsWith(TRACE));
    const others = entriesOf(entry).filter((one) => one?.pluginId !== pluginId);
    const all = shown.length ? [...others, { pluginId, lines: shown }] : others;
    return { pluginDebugEntries: all.length ? all : undefined };
  };
  const which = agentId ? { agentId, sessionKey } : { sessionKey };
  const failed = (error) => api.logger.debug?.(`memrelay: the status line was not kept (${error?.message ?? error})`);
  try {
    // Nothing to show and nothing shown before: the host's file is left alone.
    if (!lines.length && !entriesOf(sessions.getSessionEntry?.(which)).some((one) => one?.pluginId === pluginId)) return;
    // Not awaited: the turn goes on, and the answer is later than this.
    sessions.patchSessionEntry({ ...which, preserveActivity: true, update }).catch(failed);
  } catch (error) {
    failed(error);
  }
}

export function registerCommands(api, pluginId, ask, dreams) {
  const about = "Long-term memory: status, on, off, why; list, search, show, remember, forget; --global for all chats.";
  const asked = (before) => async (ctx) => {
    try {
      const { text, enabled } = await ask("command", { args: `${before}${ctx.args ?? ""}` }, ctx);
      return { text: enabled === undefined ? text : `${text}${await written(enabled)}` };
    } catch (error) {
      return { text: error.message };
    }
  };
  // The switch of the whole gateway is written into the host's configuration, where a person looks for it: off as
  // `enabled: false`, on as the default.
  const written = async (enabled) => {
    const mutate = (draft) => {
      const entry = draft.plugins?.entries?.[pluginId];
      if (enabled) delete entry?.config?.enabled;
      else if (entry) entry.config = { ...entry.config, enabled: false };
    };
    try {
      await api.runtime.config.mutateConfigFile({ afterWrite: { mode: "auto" }, mutate });
      return "";
    } catch (error) {
      return ` It holds, but could not be written into the configuration: ${error?.message ?? error}`;
    }
  };
  // Dreaming is a setting alone: it holds once the host has read its configuration again.
  const dreaming = async (ctx) => {
    try {
      const { text, consolidation: enabled, writeFiles } = await ask("command", { args: `dreaming ${ctx.args ?? ""}` }, ctx);
      const wanted = { ...(enabled !== undefined && { enabled }), ...(writeFiles !== undefined && { writeFiles }) };
      const mutate = (draft) => {
        const entries = ((draft.plugins ??= {}).entries ??= {});
        const entry = (entries[pluginId] ??= { enabled: true });
        entry.config = { ...entry.config, consolidation: { ...entry.config?.consolidation, ...wanted } };
        // Spelled with a dot, the earlier value would contradict the new one.
        for (const name of Object.keys(wanted)) delete entry.config[`consolidation.${name}`];
      };
      if (Object.keys(wanted).length) await api.runtime.config.mutateConfigFile({ afterWrite: { mode: "auto" }, mutate });
      return { text };
    } catch (error) {
      return { text: `Dreaming was not changed: ${error?.message ?? error}` };
    }
  };
  const handler = asked("");
  const register = (name, answer, description = about) =>
    api.registerCommand({ name, description, acceptsArgs: true, exposeSenderIsOwner: true, handler: answer });
  register("memory", handler);
  register("remember", asked("remember "), "Keep something in long-term memory.");
  register("forget", asked("forget "), "Hide a memory by its id, as /memory list shows it.");
  if (dreams) register("dreaming", dreaming, "Consolidation of memories on a schedule: status, on, off, help.");
  // The host's own active-memory has the second name where it is switched on. Switched on later, it finds the name taken,
  // since the host then loads it alone: we step aside by saying so, and for good once both are loaded anew.
  const owned = (config) => config?.plugins?.entries?.["active-memory"]?.enabled === true;
  const aside = `This name is active-memory's, which is switched on: openclaw plugins reload ${pluginId} active-memory, and it answers here. memrelay's own command is /memory.`;
  const current = () => api.runtime?.config?.current?.() ?? api.config;
  if (!owned(api.config)) register("active-memory", (ctx) => (owned(current()) ? { text: aside } : handler(ctx)));
}
