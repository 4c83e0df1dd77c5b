// What the page knows, and what of it the browser keeps.

import { computed, effect, signal } from "@preact/signals";
import { del, entries, set } from "idb-keyval";
import { load, save } from "./local.ts";
import type { Model, Toolbox } from "./server.ts";
import type { Settings } from "./settings.ts";
import { checked, newTalk, title, type Talk } from "./tree.ts";

export const talks = signal<Record<string, Talk>>({});
export const current = signal<string>("");
export const models = signal<Model[]>([]);
export const model = signal<string>(kept("model", ""));
export const settings = signal<Settings>(kept<Settings>("settings", {}));
export const toolbox = signal<Toolbox>({ tools: [], steps: 0 }); // of the server
export const usesTools = signal<boolean>(kept("tools", true));
export const theme = signal<"system" | "light" | "dark">(kept("theme", "system"));
/** One line above the composer, and what may be tried again. */
export const notice = signal<{ text: string; retry?: () => void } | null>(null);
export const needsKey = signal(false);
export const keyIsWrong = signal(false);
export const editing = signal<number | null>(null); // the message that is edited
export const query = signal(""); // words of the chats to list
export const panel = signal<"" | "chats" | "settings" | "shortcuts">(""); // shown over the page

export const sees = computed(() => models.value.some((m) => m.name === model.value && m.sees));
export const nCtx = computed(() => models.value.find((m) => m.name === model.value)?.nCtx ?? 0);
export const talk = computed<Talk | undefined>(() => talks.value[current.value]);
export const newest = computed(() =>
  Object.values(talks.value).sort((a, b) => b.changed - a.changed),
);

effect(() => {
  void current.value;
  editing.value = null;
});
effect(() => keep("settings", settings.value));
effect(() => keep("tools", usesTools.value));
effect(() => keep("model", model.value));
effect(() => {
  keep("theme", theme.value);
  document.documentElement.dataset.theme = theme.value;
});

function kept<T>(name: string, otherwise: T): T {
  try {
    return JSON.parse(load(name) ?? "") as T;
  } catch {
    return otherwise;
  }
}

function keep(name: string, value: unknown): void {
  save(name, JSON.stringify(value));
}

/** Conversations of earlier visits. */
export async function restore(): Promise<void> {
  try {
    const found = (await entries()).map(([, value]) => checked(value)).filter((t) => t !== null);
    talks.value = Object.fromEntries(found.map((t) => [t.id, t]));
  } catch {
    notice.value = { text: "This browser cannot store chats. Use Save all before you close the page." };
  }
  current.value = newest.value[0]?.id ?? "";
  if (!current.value) start();
}

/** A new conversation; an empty one is taken again. */
export function start(): void {
  const empty = newest.value.find((t) => t.leaf === null);
  const fresh = empty ?? newTalk(crypto.getRandomValues(new Uint32Array(2)).join("-"), Date.now());
  talks.value = { ...talks.value, [fresh.id]: fresh };
  current.value = fresh.id;
}

/** Show a changed conversation; keep it unless more is about to come. */
export function put(changed: Talk, soon = false): void {
  show({ ...changed, changed: Date.now() }, soon);
}

/** Give a chat a name, at its place in the list; an empty name is its first words. */
export function rename(named: Talk, name: string): void {
  const plain = { ...named, title: "" };
  show({ ...plain, title: name.trim() === title(plain) ? "" : name.trim() });
}

function show(changed: Talk, soon = false): void {
  talks.value = { ...talks.value, [changed.id]: changed };
  if (!soon) set(changed.id, changed).catch(unstored);
}

function unstored(): void {
  notice.value = { text: "This browser could not store the chat. Use Save all, then delete chats with large images or files." };
}

export function forget(id: string): void {
  const { [id]: _gone, ...rest } = talks.value;
  talks.value = rest;
  del(id).catch(() => undefined);
  if (current.value === id) current.value = newest.value[0]?.id ?? "";
  if (!current.value) start();
}
