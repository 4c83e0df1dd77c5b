// The server's face, as far as the page needs it.

import { createParser } from "eventsource-parser";
import { load, save } from "./local.ts";
import type { Settings } from "./settings.ts";

export interface Part {
  text?: string;
  thought?: string;
  tokens?: number;
  rate?: number;
  used?: number; // tokens of the context so far
  end?: string;
  calls?: { index: number; id?: string; function?: { name?: string; arguments?: string } }[];
}

export type Content =
  | string
  | ({ type: "text"; text: string } | { type: "image_url"; image_url: { url: string } })[];

export interface Sent {
  role: "system" | "user" | "assistant" | "tool";
  content: Content | null;
  tool_calls?: object[];
  tool_call_id?: string;
  name?: string;
}

/** A tool, as requests and the page have it. */
export interface Tool {
  type: "function";
  function: { name: string; description: string; parameters: object };
}

export interface Toolbox {
  tools: Tool[];
  steps: number; // most answers with calls for a message
}

export interface Model {
  name: string;
  sees: boolean; // images may be sent to it
  nCtx: number; // tokens that one chat may use; 0: unknown until it is loaded
}

export class Refused extends Error {
  status: number;
  constructor(status: number, message: string) {
    super(message);
    this.status = status;
  }
}

/** The prompt does not fit into the context. */
export class TooLong extends Refused {
  tokens: number;
  nCtx: number;
  constructor(error: any) {
    super(400, error.message);
    this.tokens = error.n_prompt_tokens;
    this.nCtx = error.n_ctx;
  }
}

function refused(error: any, status: number): Refused {
  if (error.type === "exceed_context_size_error") return new TooLong(error);
  return new Refused(status, error.message);
}

export const UNREACHABLE = "Cannot reach the server. Check that llama-py-server is running, then retry.";
export const CUT = "The connection closed before the response ended. Check that llama-py-server is running, then retry.";

export let key = load("key") ?? "";

/** Use a key from now on; the browser keeps it only if `keep`. */
export function setKey(value: string, keep: boolean): void {
  key = value;
  save("key", keep ? value : null);
}

/** Whether the browser keeps the key. */
export const keepsKey = () => load("key") !== null;

/** A result of the network; a failure is told as `message`, and AbortError stays. */
async function reached<T>(promise: Promise<T>, message: string): Promise<T> {
  try {
    return await promise;
  } catch (e) {
    if ((e as Error).name === "AbortError") throw e;
    throw new Refused(0, message);
  }
}

async function ask(url: string, init: RequestInit = {}): Promise<Response> {
  const headers = new Headers(init.headers);
  if (key) headers.set("Authorization", `Bearer ${key}`);
  const answer = await reached(fetch(url, { ...init, headers }), UNREACHABLE);
  if (answer.ok) return answer;
  let error: any = {};
  try {
    error = (await answer.json()).error ?? {};
  } catch {
    // not the server's own words: a proxy's page, or nothing
  }
  throw refused({ message: `${answer.status} ${answer.statusText}`, ...error }, answer.status);
}

/** What the user can do after an error with this status. */
export function remedy(status: number): string {
  if (status === 401) return "Enter the server's API key below.";
  if (status === 429 || status === 503) return "Retry in a few seconds.";
  if (status >= 500) return "Retry, or read the server's log.";
  return status ? "Change the message or the settings, then retry." : "";
}

/** Whether the server has tools. */
export let hasTools = false;

/** Tools that this page may call. */
export async function tools(): Promise<Toolbox> {
  return (await ask("tools")).json();
}

export interface Result {
  text: string;
  is_error: boolean;
  notice?: string; // for the user: the tool's server was started again
}

export async function callTool(name: string, args: object, signal: AbortSignal): Promise<Result> {
  const body = JSON.stringify({ name, arguments: args });
  const headers = { "Content-Type": "application/json" };
  return (await ask("tools/call", { method: "POST", headers, body, signal })).json();
}

/** The models that can be asked. */
export async function models(): Promise<Model[]> {
  const found = await (await ask("v1/models")).json();
  hasTools = found.mcp_tools === true;
  const only = found.models?.[0]?.capabilities?.includes("multimodal"); // of a server of one model
  return found.data.map((one: any) => ({
    name: one.id,
    sees: Boolean(only ?? one.architecture?.input_modalities?.includes("image")),
    nCtx: one.meta?.n_ctx ?? 0,
  }));
}

/** Parts of an answer as they come. Throws Refused, and AbortError after `signal`. */
export async function* answer(
  messages: Sent[],
  model: string,
  settings: Settings,
  tools: Tool[],
  signal: AbortSignal,
): AsyncGenerator<Part> {
  const body = JSON.stringify({
    ...settings,
    ...(tools.length ? { tools } : {}),
    model,
    messages,
    stream: true,
    stream_options: { include_usage: true },
    timings_per_token: true,
  });
  const headers = { "Content-Type": "application/json" };
  const answer = await ask("v1/chat/completions", { method: "POST", headers, body, signal });
  const waiting: Part[] = [];
  const parser = createParser({
    onEvent(event) {
      if (event.data !== "[DONE]") waiting.push(part(JSON.parse(event.data)));
    },
  });
  const decoder = new TextDecoder();
  const reader = answer.body!.getReader();
  for (;;) {
    const { done, value } = await reached(reader.read(), CUT);
    if (done) return;
    parser.feed(decoder.decode(value, { stream: true }));
    yield* waiting.splice(0);
  }
}

function part(chunk: any): Part {
  if (chunk.error) throw refused(chunk.error, chunk.error.code ?? 500);
  const found: Part = {};
  const choice = chunk.choices?.[0];
  if (choice?.delta?.content) found.text = choice.delta.content;
  if (choice?.delta?.reasoning_content) found.thought = choice.delta.reasoning_content;
  if (choice?.delta?.tool_calls) found.calls = choice.delta.tool_calls;
  if (choice?.finish_reason) found.end = choice.finish_reason;
  if (chunk.timings) {
    const { cache_n, prompt_n, predicted_n } = chunk.timings;
    found.used = (cache_n ?? 0) + prompt_n + predicted_n;
    found.tokens = predicted_n;
    found.rate = chunk.timings.predicted_per_second;
  }
  return found;
}
