// What the user can do with a conversation.

import { signal } from "@preact/signals";
import * as server from "./server.ts";
import { keyIsWrong, model, models, nCtx, needsKey, notice, put, sees, settings, talks } from "./store.ts";
import {
  add, change, fitted, newestTurns, path, remove, withFiles, withoutOldest, type Attachments, type Message, type Talk,
} from "./tree.ts";

/** The id of the conversation that is being answered, and how to stop it. */
export const answering = signal<{ id: string; stop: AbortController } | null>(null);

const SHOWN_EVERY = 40; // milliseconds: a page that is drawn for each token slows the model down

export async function connect(): Promise<void> {
  try {
    models.value = await server.models();
    const known = models.value.some(({ name }) => name === model.value);
    if (!known) model.value = models.value[0]?.name ?? "";
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
  const part = { text: "", thought: "", tokens: 0, rate: 0, used: 0, left: 0, end: "" };
  let shown = 0;
  const show = (fields: object, soon = false) => {
    const now = talks.value[talk.id]; // it may have been deleted
    if (now) put(change(now, message.id, { ...part, ...fields }), soon);
  };
  const receive = async () => {
    part.left = all.length - sent.length;
    const messages = [...system(talk), ...sent.map((m) => ({ role: m.role, content: content(m) }))];
    for await (const one of server.answer(messages, model.value, settings.value, stop.signal)) {
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
        break;
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
