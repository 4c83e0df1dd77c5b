// Calls of tools in an answer: the user's consent, and results.

import { signal } from "@preact/signals";
import * as server from "./server.ts";
import { notice } from "./store.ts";
import { INTERRUPTED, type Call } from "./tree.ts";

export type Consent = "once" | "always" | "no";

/** The call that the user is asked about. */
export const question = signal<{ call: Call; answer: (consent: Consent) => void } | null>(null);

const allowed = new Set<string>(); // tools that this visit calls without a question
const SHARE = 4; // a result takes at most this part of the context
const PER_TOKEN = 3; // characters, estimated
const UNKNOWN = 4096; // tokens of a context that is not loaded yet

/** Calls with the next pieces of a stream. */
export function collect(calls: Call[], pieces: NonNullable<server.Part["calls"]>): Call[] {
  if (!pieces.length) return calls;
  const found = calls.map((call) => ({ ...call }));
  for (const { index, id, function: made } of pieces) {
    const call = (found[index] ??= { id: id ?? "", name: "", arguments: "" });
    call.name += made?.name ?? "";
    call.arguments += made?.arguments ?? "";
  }
  return found.filter(Boolean);
}

/** Run calls one after the other; `show` draws them after each change. Throws AbortError if the user
 * stops the answer: the calls then have a result, too. */
export async function runCalls(calls: Call[], nCtx: number, show: (calls: Call[]) => void, signal: AbortSignal): Promise<void> {
  const most = Math.floor(((nCtx || UNKNOWN) * PER_TOKEN) / SHARE / calls.length);
  const done = [...calls];
  try {
    for (const [i, call] of calls.entries()) {
      show([...done]);
      const { text, is_error, notice: line } = await run(call, signal);
      if (line) notice.value = { text: line };
      const note = `\n[cut: the first ${most} of ${text.length} characters]`;
      done[i] = { ...call, result: text.length > most ? text.slice(0, most) + note : text, failed: is_error };
    }
  } finally {
    show(done.map((call) => ({ ...call, result: call.result ?? INTERRUPTED })));
  }
}

async function run(call: Call, signal: AbortSignal): Promise<server.Result> {
  let args: unknown = null;
  try {
    args = JSON.parse(call.arguments || "{}");
  } catch {
    // the answer was cut
  }
  if (typeof args !== "object" || args === null || Array.isArray(args)) {
    return { text: "error: the arguments are not a JSON object", is_error: true };
  }
  if (!(await consents(call, signal))) return { text: "not called: the user declined", is_error: true };
  try {
    return await server.callTool(call.name, args, signal);
  } catch (e) {
    if (signal.aborted) throw e;
    return { text: `error: ${(e as Error).message}`, is_error: true };
  }
}

/** Ask the user; AbortError if the answer is stopped. */
async function consents(call: Call, signal: AbortSignal): Promise<boolean> {
  if (allowed.has(call.name)) return true;
  try {
    const consent = await new Promise<Consent>((answer, fail) => {
      signal.addEventListener("abort", () => fail(new DOMException("stopped", "AbortError")), { once: true });
      if (signal.aborted) fail(new DOMException("stopped", "AbortError"));
      question.value = { call, answer };
    });
    if (consent === "always") allowed.add(call.name);
    return consent !== "no";
  } finally {
    question.value = null;
  }
}
