/** The pinned identities of relayers, and the secret and trust file that the Python client uses too. */

import { fromHex, hex } from "./bytes.js";
import { IdentityError, RelayerUntrusted } from "./errors.js";

/** Stores the identity of each relayer by its origin. */
export interface TrustStore {
  /** Pin an identity unless one is pinned already, and return the pinned one. */
  pinFirst(origin: string, identity: Uint8Array): Promise<Uint8Array>;
}

/** Pins identities in this process only: the next process trusts the first relayer that answers again. */
export class MemoryTrustStore implements TrustStore {
  readonly #pins = new Map<string, Uint8Array>();
  async pinFirst(origin: string, identity: Uint8Array): Promise<Uint8Array> {
    if (!this.#pins.has(origin)) this.#pins.set(origin, identity);
    return this.#pins.get(origin)!;
  }
}

interface Process {
  env: Record<string, string | undefined>;
  getBuiltinModule?: (name: string) => unknown;
  pid: number;
  platform: string;
  versions?: { node?: string };
}

const { process } = globalThis as { process?: Process };
// Deno and Bun have this version too. The `process` that bundlers put into pages has none, and leads to no files.
const host = process?.versions?.node ? process : undefined;

/** Return a module of Node, Deno or Bun; undefined in a browser. */
async function builtin<Module>(name: string): Promise<Module | undefined> {
  if (host?.getBuiltinModule) return host.getBuiltinModule(name) as Module;
  if (host === undefined) return undefined;
  // A variable keeps bundlers for browsers from resolving the name.
  const specifier = name;
  return (await import(/* @vite-ignore */ specifier)) as Module;
}

type Files = typeof import("node:fs/promises");

export function environment(name: string): string | undefined {
  try {
    return host?.env[name];
  } catch {
    return undefined; // Deno without --allow-env
  }
}

function configDirectory(): string {
  const home = environment("XDG_CONFIG_HOME") || (environment("HOME") && `${environment("HOME")}/.config`);
  if (!home) throw new IdentityError("there is no home directory: pass the secret, or set MEMRELAY_SECRET or XDG_CONFIG_HOME");
  return `${home}/memrelay`;
}

async function readPrivate(files: Files, path: string): Promise<string> {
  const { mode } = await files.stat(path);
  if (host?.platform !== "win32" && mode & 0o077) throw new IdentityError(`${path} can be read by other users: chmod 600 it`);
  return files.readFile(path, "utf8");
}

/** Return the secret of MEMRELAY_SECRET, of MEMRELAY_SECRET_FILE, or of the file that `memrelay-gateway init` created. */
export async function findSecret(): Promise<string> {
  const given = environment("MEMRELAY_SECRET");
  if (given !== undefined) return given;
  const files = await builtin<Files>("node:fs/promises");
  if (!files) throw new IdentityError("there is no secret: pass it as the option secret");
  const path = environment("MEMRELAY_SECRET_FILE") || `${configDirectory()}/secret`;
  try {
    return await readPrivate(files, path);
  } catch (error) {
    if (error instanceof IdentityError) throw error;
    throw new IdentityError(`there is no secret in ${path}: create it with memrelay-gateway init, or set MEMRELAY_SECRET`);
  }
}

/** The pins in `trust.json`, which the Python client shares. */
export class FileTrustStore implements TrustStore {
  constructor(private readonly path?: string) {}

  async pinFirst(origin: string, identity: Uint8Array): Promise<Uint8Array> {
    const files = await builtin<Files>("node:fs/promises");
    if (!files) throw new RelayerUntrusted("there are no files here: pass the option trust, or the relayer's identity");
    const path = this.path ?? `${configDirectory()}/trust.json`;
    const known = await this.#read(files, path);
    const pinned = known[origin];
    if (pinned !== undefined) {
      if (!/^[0-9a-f]{64}$/i.test(pinned)) throw damaged(path);
      return fromHex(pinned);
    }
    const draft = `${path}.${host?.pid}-${hex(crypto.getRandomValues(new Uint8Array(4)))}`;
    const content = JSON.stringify({ relayers: { ...known, [origin]: hex(identity) }, version: 1 }, null, 2);
    try {
      await files.mkdir(path.replace(/[/\\][^/\\]*$/, ""), { recursive: true, mode: 0o700 });
      await files.writeFile(draft, `${content}\n`, { mode: 0o600, flag: "wx" });
      await files.rename(draft, path);
    } catch {
      throw new RelayerUntrusted(`the relayer's identity cannot be stored in ${path}`);
    }
    return identity;
  }

  async #read(files: Files, path: string): Promise<Record<string, string>> {
    let text: string;
    try {
      text = await readPrivate(files, path);
    } catch (error) {
      if ((error as { code?: string }).code === "ENOENT") return {};
      throw new RelayerUntrusted(error instanceof IdentityError ? error.message : `${path} cannot be read`);
    }
    try {
      const read = JSON.parse(text) as { version?: number; relayers?: Record<string, string> };
      if (read.version !== 1 || typeof read.relayers !== "object") throw damaged(path);
      return read.relayers;
    } catch {
      throw damaged(path);
    }
  }
}

/** The pins in the `localStorage` of a web page, which later visits share. */
export class PageTrustStore implements TrustStore {
  async pinFirst(origin: string, identity: Uint8Array): Promise<Uint8Array> {
    const name = `memrelay:${origin}`;
    let pinned: string | null;
    try {
      pinned = localStorage.getItem(name);
      if (pinned === null) localStorage.setItem(name, hex(identity));
    } catch {
      throw new RelayerUntrusted("the relayer's identity cannot be stored in localStorage: pass the option trust, or the identity");
    }
    if (pinned === null) return identity;
    if (!/^[0-9a-f]{64}$/i.test(pinned)) throw new RelayerUntrusted(`${name} in localStorage is damaged; remove it`);
    return fromHex(pinned);
  }
}

function damaged(path: string): RelayerUntrusted {
  return new RelayerUntrusted(`${path} is damaged; remove it, then run memrelay-gateway trust URL`);
}

/** Return the trust file where there are files, the page's storage in a page, else pins in this process. */
export function defaultTrustStore(): TrustStore {
  if (host !== undefined) return new FileTrustStore();
  return "localStorage" in globalThis ? new PageTrustStore() : new MemoryTrustStore();
}

/** Return the origin of the web page or worker that this runs in; undefined outside of a browser. */
export function pageOrigin(): string | undefined {
  return host === undefined ? (globalThis as { location?: Location }).location?.origin : undefined;
}
