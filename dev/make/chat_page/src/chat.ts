// What the user can do with a conversation.

import { signal } from "@preact/signals";
import * as server from "./server.ts";
import { keyIsWrong, model, models, nCtx, needsKey, notice, put, sees, settings, talks, toolbox, usesTools } from "./store.ts";
import { collect, runCalls } from "./tools.ts";
import {
  add, change, fitted, INTERRUPTED, newestTurns, path, remove, withFiles, withoutOldest,
  type Attachments, type Call, type Message, type Step, type Talk,
} from "./tree.ts";

/** The id of the conversation that is being answered, and how to stop it. */
export const answering = signal<{ id: string; stop: AbortController } | null>(null);

const SHOWN_EVERY = 40; // milliseconds: a page that is drawn for each token slows the model down

export async function connect(): Promise<void> {
  try {
    models.value = await server.models();
    const known = models.value.some(({ name }) => name === model.value);
    if (!known) model.value = models.value[0]?.name ?? "";
    toolbox.value = server.hasTools ? await server.tools().catch(() => toolbox.value) : { tools: [], steps: 0 };
    needsKey.value = false;
    notice.value = null;
  } catch (e) {
    needsKey.value = e instanceof server.Refused && e.status === 401;
    keyIsWrong.value = needsKey.value && server.key !== "";
    notice.value = needsKey.value ? null : { text: failure(e), retry: () => void connect() };
  }
}

/** An error as the problem and its remedy. */
function failure(e: unknown): string {
  const status = e instanceof server.Refused ? e.status : 0;
  const text = (e as Error).message.trim();
  return [/[.!?]$/.test(text) ? text : `${text}.`, server.remedy(status)].filter(Boolean).join(" ");
}

/** The user's words, images and files behind `parent`, then the answer. */
export async function send(
  talk: Talk,
  parent: number | null,
  text: string,
  attachments: Attachments = {},
): Promise<void> {
  const [asked, question] = add(talk, parent, "user", text, attachments);
  await answer(asked, question.id);
}

/** Another answer in place of one that failed. */
export async function retry(talk: Talk, failed: Message): Promise<void> {
  await answer(failed.text ? talk : remove(talk, failed.id), failed.parent!);
}

/** An answer to the message `to`, beside those that it has. If the context is full, the oldest
 * turns are not sent. */
export async function answer(talk: Talk, to: number): Promise<void> {
  if (answering.value) return;
  const all = path(talk, to);
  let sent = fitted(all, nCtx.value);
  const [begun, message] = add(talk, to, "assistant", "");
  put(begun);
  const stop = new AbortController();
  answering.value = { id: talk.id, stop };
  const part = { text: "", thought: "", steps: [] as Step[], tokens: 0, rate: 0, used: 0, left: 0, end: "" };
  let calls: Call[] = [];
  const { tools, steps } = usesTools.value ? toolbox.value : { tools: [], steps: 0 };
  let shown = 0;
  const show = (fields: object, soon = false) => {
    const now = talks.value[talk.id]; // it may have been deleted
    if (now) put(change(now, message.id, { ...part, ...fields }), soon);
  };
  const receive = async () => {
    part.left = all.length - sent.length;
    const messages = [...system(talk), ...sent.flatMap(asSent), ...part.steps.flatMap(stepAsSent)];
    for await (const one of server.answer(messages, model.value, settings.value, tools, stop.signal)) {
      calls = collect(calls, one.calls ?? []);
      part.text += one.text ?? "";
      part.thought += one.thought ?? "";
      part.tokens = one.tokens ?? part.tokens;
      part.rate = one.rate ?? part.rate;
      part.used = one.used ?? part.used;
      part.end = one.end ?? part.end;
      if (Date.now() - shown > SHOWN_EVERY) {
        shown = Date.now();
        show({}, true);
      }
    }
  };
  try {
    for (;;) {
      try {
        await receive();
        if (!calls.length) break;
        if (part.steps.length === steps) {
          part.end = "too many calls";
          break;
        }
        const { text, thought, steps: before } = part;
        Object.assign(part, { text: "", thought: "", end: "" });
        const showCalls = (now: Call[]) => {
          part.steps = [...before, { text, thought, calls: now }];
          show({});
        };
        await runCalls(calls, nCtx.value, showCalls, stop.signal);
        calls = [];
      } catch (e) {
        const fewer = e instanceof server.TooLong && !part.used ? withoutOldest(sent) : null;
        if (fewer === null) throw e;
        const { tokens, nCtx } = e as server.TooLong;
        const kept = newestTurns(sent, tokens, nCtx);
        sent = kept.length < sent.length ? kept : fewer;
      }
    }
    show(part.end ? {} : { error: server.CUT });
    if (!nCtx.value) models.value = await server.models(); // it is loaded now
  } catch (e) {
    if (stop.signal.aborted) show({ end: "stopped" });
    else if (e instanceof server.TooLong) show({ end: "too long", used: e.tokens });
    else {
      needsKey.value = e instanceof server.Refused && e.status === 401;
      keyIsWrong.value = needsKey.value && server.key !== "";
      show({ error: failure(e) });
    }
  } finally {
    answering.value = null;
  }
}

/** The messages of one of the page: an answer with calls is several. */
function asSent(m: Message): server.Sent[] {
  const steps = (m.steps ?? []).flatMap(stepAsSent);
  return steps.length && !m.text ? steps : [...steps, { role: m.role, content: content(m) }];
}

function stepAsSent({ text, calls }: Step): server.Sent[] {
  const made = calls.map(({ id, name, arguments: args }) => ({ id, type: "function", function: { name, arguments: args } }));
  return [
    { role: "assistant", content: text || null, tool_calls: made },
    ...calls.map(({ id, name, result }) => ({ role: "tool" as const, tool_call_id: id, name, content: result ?? INTERRUPTED })),
  ];
}

function system(talk: Talk): server.Sent[] {
  return talk.system.trim() ? [{ role: "system", content: talk.system }] : [];
}

/** Images that a model without sight would refuse are left out. */
function content(m: Message): server.Content {
  const text = withFiles(m);
  if (!m.images || !sees.value) return text;
  return [
    ...m.images.map((url) => ({ type: "image_url" as const, image_url: { url } })),
    { type: "text" as const, text },
  ];
}

export function stop(): void {
  answering.value?.stop.abort();
}
