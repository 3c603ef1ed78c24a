// Answers the host's question about the memory files of a workspace: who wrote them, and may they enter the system prompt.
import { realpath } from "node:fs/promises";
import { isAbsolute, posix, relative, resolve, sep } from "node:path";

const PROFILES = ["MEMORY.md", "USER.md"];
const CURATED = /^(?:MEMORY\.md|memory\.md|USER\.md|users\/[a-zA-Z0-9][\w-]{0,127}\/USER\.md|memory\/(?:.+\/)?[^/]*\.md)$/;
const HOSTS_OWN = /^(?:dreams\.md|DREAMS\.md|memory\/(?:dreaming|\.dreams)(?:\/.*)?)$/;
const MAX_WORKSPACES = 200;

// The host records which files an agent wrote while it read a stranger's text. Hosts before 2026.9 keep no such record.
const recorded = import("openclaw/plugin-sdk/memory-core-host-runtime-core").then(
  (sdk) => sdk.readMemoryArtifactProvenance,
  () => undefined,
);
// The host's list of the files of all workspaces, for memory-wiki. Hosts before it existed ask for none.
const listed = import("openclaw/plugin-sdk/memory-host-core").then(
  (sdk) => sdk.listMemoryHostPublicArtifacts,
  () => undefined,
);
export const listArtifacts = async (params) => (await (await listed)?.(params)) ?? [];

// By workspace, the files that may enter the system prompt; shared by all registrations of the plugin in one process.
const eligible = (globalThis[Symbol.for("memrelay.prompted")] ??= new Map());

async function placeOf(workspaceDir, relativePath, readSources) {
  if (readSources) return readSources.find((source) => source.relativePath === relativePath)?.canonicalRelativePath ?? "";
  const [root, file] = await Promise.all([realpath(workspaceDir), realpath(resolve(workspaceDir, relativePath))]);
  return relative(root, file).replaceAll(sep, "/");
}

export async function originOf(workspaceDir, relativePath, readSources) {
  const place = await placeOf(workspaceDir, relativePath, readSources).catch(() => "");
  if (!place || place.startsWith("..") || isAbsolute(place) || posix.normalize(place) !== place) return "untrusted";
  if (HOSTS_OWN.test(place)) return "system";
  if (!CURATED.test(place)) return "untrusted";
  const read = await recorded;
  return (await read?.({ workspaceDir, relativePath: place }))?.originClass ?? "agent";
}

// Without this answer the host leaves MEMORY.md and USER.md out of the system prompt.
export async function classifyWorkspaceMemoryPaths({ workspaceDir, relativePaths, readSources }) {
  const origins = relativePaths.map(async (relativePath) => ({
    relativePath,
    originClass: await originOf(workspaceDir, relativePath, readSources),
  }));
  const classified = await Promise.all(origins);
  const names = classified.filter(({ originClass }) => originClass === "agent").map(({ relativePath }) => relativePath);
  eligible.delete(workspaceDir);
  eligible.set(workspaceDir, names);
  if (eligible.size > MAX_WORKSPACES) eligible.delete(eligible.keys().next().value);
  return classified;
}

// The files of a workspace that the host puts into the system prompt, by all that is known here.
export const prompted = (workspaceDir) => eligible.get(workspaceDir) ?? PROFILES;
