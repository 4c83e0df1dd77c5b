// What the user can do with a conversation.

import { signal } from "@preact/signals";
import * as server from "./server.ts";
import { model, models, needsKey, notice, put, sees, settings, talks } from "./store.ts";
import { add, change, path, type Message, type Talk } from "./tree.ts";

/** The id of the conversation that is being answered, and how to stop it. */
export const answering = signal<{ id: string; stop: AbortController } | null>(null);

const SHOWN_EVERY = 40; // milliseconds: a page that is drawn for each token slows the model down

export async function connect(): Promise<void> {
  try {
    models.value = await server.models();
    model.value ||= models.value[0]?.name ?? "";
    needsKey.value = false;
    notice.value = "";
  } catch (e) {
    needsKey.value = e instanceof server.Refused && e.status === 401;
    notice.value = needsKey.value ? "" : `The server does not answer: ${(e as Error).message}`;
  }
}

/** The user's words and images behind `parent`, then the answer. */
export async function send(
  talk: Talk,
  parent: number | null,
  text: string,
  images: string[] = [],
): Promise<void> {
  const [asked, question] = add(talk, parent, "user", text, images);
  await answer(asked, question.id);
}

/** An answer to the message `to`, beside those that it has. */
export async function answer(talk: Talk, to: number): Promise<void> {
  if (answering.value) return;
  const sent: server.Sent[] = talk.system.trim() ? [{ role: "system", content: talk.system }] : [];
  for (const m of path(talk, to)) sent.push({ role: m.role, content: content(m) });
  const [begun, message] = add(talk, to, "assistant", "");
  put(begun);
  const stop = new AbortController();
  answering.value = { id: talk.id, stop };
  const part = { text: "", thought: "", tokens: 0, rate: 0, end: "" };
  let shown = 0;
  const show = (fields: object, soon = false) => {
    const now = talks.value[talk.id]; // it may have been deleted
    if (now) put(change(now, message.id, { ...part, ...fields }), soon);
  };
  try {
    for await (const one of server.answer(sent, model.value, settings.value, stop.signal)) {
      part.text += one.text ?? "";
      part.thought += one.thought ?? "";
      part.tokens = one.tokens ?? part.tokens;
      part.rate = one.rate ?? part.rate;
      part.end = one.end ?? part.end;
      if (Date.now() - shown > SHOWN_EVERY) {
        shown = Date.now();
        show({}, true);
      }
    }
    show(part.end ? {} : { error: "The server ended before the answer did." });
  } catch (e) {
    if (stop.signal.aborted) show({ end: "stopped" });
    else {
      needsKey.value = e instanceof server.Refused && e.status === 401;
      show({ error: (e as Error).message });
    }
  } finally {
    answering.value = null;
  }
}

/** Images that a model without sight would refuse are left out. */
function content(m: Message): server.Content {
  if (!m.images || !sees.value) return m.text;
  return [
    ...m.images.map((url) => ({ type: "image_url" as const, image_url: { url } })),
    { type: "text" as const, text: m.text },
  ];
}

export function stop(): void {
  answering.value?.stop.abort();
}
