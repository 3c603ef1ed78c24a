/** A middleware for the Vercel AI SDK: recalls memories into the prompt, and stores what is worth keeping after the answer. */

import type { LanguageModelV3CallOptions, LanguageModelV3Message, LanguageModelV3Middleware } from "@ai-sdk/provider";
import type { Memory, Message } from "./memory.js";

// A message has at most 64 KiB of UTF-8, and a request at most 2 MiB.
const LONGEST = 16_000;
const MOST_MESSAGES = 20;

export interface MemoryMiddlewareOptions {
  memory: Memory;
  /** The user; undefined takes `providerOptions.memrelay.user` of the call, or else the user of the memory. */
  user?: string;
  /** The maximum number of memories in the prompt, without those that are in every prompt. */
  limit?: number;
  /** The minimum score of a memory in the prompt, unless it is in every prompt. */
  minScore?: number;
  /** The maximum duration of recall in seconds; the model is called without memories after it. */
  timeout?: number;
  /** Whether turns are stored. */
  capture?: boolean;
  /** Called with errors, which never reach the call of the model. */
  onError?: (error: unknown) => void;
  /** Called with the work after an answer, e.g. `waitUntil` of a serverless platform. */
  waitUntil?: (work: Promise<void>) => void;
}

export interface MemoryMiddleware extends LanguageModelV3Middleware {
  /** Wait until all turns so far are stored. */
  flush(): Promise<void>;
}

interface Turn {
  text: string;
  user: string | undefined;
}

export function memoryMiddleware(options: MemoryMiddlewareOptions): MemoryMiddleware {
  const { memory, limit = 5, minScore = 0.3, timeout = 2, capture = true } = options;
  // The turn as the user wrote it: the parameters that the wrappers get contain the memories already.
  const turns = new WeakMap<object, Turn>();
  const pending = new Set<Promise<void>>();

  const report = (error: unknown) => {
    try {
      options.onError?.(error);
    } catch {
      // An error handler must not break the call of the model.
    }
  };

  const store = (params: LanguageModelV3CallOptions, answer: string) => {
    const turn = turns.get(params);
    if (!capture || !turn?.text || !answer) return;
    const messages = [...said("user", turn.text), ...said("assistant", answer)];
    const work = memory.add(messages, of(turn.user)).then(() => undefined, report);
    pending.add(work);
    void work.then(() => pending.delete(work));
    try {
      options.waitUntil?.(work);
    } catch (error) {
      report(error);
    }
  };

  return {
    specificationVersion: "v3",

    async transformParams({ params }) {
      const at = params.prompt.findLastIndex((message) => message.role === "user");
      const message = params.prompt[at];
      const text = message?.role === "user" ? textOf(message.content) : "";
      const given = options.user ?? params.providerOptions?.["memrelay"]?.["user"];
      if (given !== undefined && typeof given !== "string") {
        // Memories of another user must not be used instead.
        report(new TypeError("providerOptions.memrelay.user must be a text"));
        return params;
      }
      const transformed = { ...params };
      if (message?.role !== "user" || !text) return transformed;
      turns.set(transformed, { text, user: given });
      try {
        const block = await memory.recall(text, { limit, minScore, timeout, ...of(given) });
        if (block) {
          const recalled: LanguageModelV3Message = { ...message, content: [{ type: "text", text: block }, ...message.content] };
          transformed.prompt = params.prompt.with(at, recalled);
        }
      } catch (error) {
        report(error);
      }
      return transformed;
    },

    async wrapGenerate({ doGenerate, params }) {
      const result = await doGenerate();
      // A call of a tool is not the end of the turn.
      if (result.finishReason.unified === "stop") store(params, textOf(result.content));
      return result;
    },

    async wrapStream({ doStream, params }) {
      const { stream, ...rest } = await doStream();
      let answer = "";
      const watched = new TransformStream<Part, Part>({
        transform(part, controller) {
          if (part.type === "text-delta") answer += part.delta;
          if (part.type === "finish" && part.finishReason.unified === "stop") store(params, answer);
          controller.enqueue(part);
        },
      });
      return { stream: stream.pipeThrough(watched), ...rest };
    },

    async flush() {
      while (pending.size) await Promise.all(pending);
    },
  };
}

type Stream = Awaited<ReturnType<Parameters<NonNullable<LanguageModelV3Middleware["wrapStream"]>>[0]["doStream"]>>["stream"];
type Part = Stream extends ReadableStream<infer P> ? P : never;

/** Return messages with a text, which is divided at ends of lines or words if it is too long for one. */
function said(role: Message["role"], text: string): Message[] {
  const messages: Message[] = [];
  for (let rest = text; rest && messages.length < MOST_MESSAGES; ) {
    let end = rest.length;
    if (end > LONGEST) end = [rest.lastIndexOf("\n", LONGEST), rest.lastIndexOf(" ", LONGEST)].find((one) => one > 0) ?? LONGEST;
    messages.push({ role, content: rest.slice(0, end).replace(/\p{Surrogate}/gu, "?") });
    rest = rest.slice(end).trimStart();
  }
  return messages;
}

function of(user: string | undefined): { user?: string } {
  return user === undefined ? {} : { user };
}

function textOf(content: readonly { type: string }[]): string {
  return content.flatMap((part) => (part.type === "text" && "text" in part ? [String(part.text)] : [])).join("\n").trim();
}
