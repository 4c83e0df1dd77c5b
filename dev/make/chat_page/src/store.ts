// What the page knows, and what of it the browser keeps.

import { computed, effect, signal } from "@preact/signals";
import { del, entries, set } from "idb-keyval";
import type { Model } from "./server.ts";
import type { Settings } from "./settings.ts";
import { checked, newTalk, type Talk } from "./tree.ts";

export const talks = signal<Record<string, Talk>>({});
export const current = signal<string>("");
export const models = signal<Model[]>([]);
export const model = signal<string>("");
export const settings = signal<Settings>(kept<Settings>("settings", {}));
export const theme = signal<"system" | "light" | "dark">(kept("theme", "system"));
export const notice = signal<string>(""); // one line above the composer
export const needsKey = signal(false);

export const sees = computed(() => models.value.some((m) => m.name === model.value && m.sees));
export const nCtx = computed(() => models.value.find((m) => m.name === model.value)?.nCtx ?? 0);
export const talk = computed<Talk | undefined>(() => talks.value[current.value]);
export const newest = computed(() =>
  Object.values(talks.value).sort((a, b) => b.changed - a.changed),
);

effect(() => keep("settings", settings.value));
effect(() => {
  keep("theme", theme.value);
  document.documentElement.dataset.theme = theme.value;
});

function kept<T>(name: string, otherwise: T): T {
  try {
    return JSON.parse(localStorage.getItem(name) ?? "") as T;
  } catch {
    return otherwise;
  }
}

function keep(name: string, value: unknown): void {
  localStorage.setItem(name, JSON.stringify(value));
}

/** Conversations of earlier visits. */
export async function restore(): Promise<void> {
  try {
    const found = (await entries()).map(([, value]) => checked(value)).filter((t) => t !== null);
    talks.value = Object.fromEntries(found.map((t) => [t.id, t]));
  } catch {
    notice.value = "This browser keeps nothing: conversations end with the page.";
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
  const dated = { ...changed, changed: Date.now() };
  talks.value = { ...talks.value, [dated.id]: dated };
  if (!soon) set(dated.id, dated).catch(() => undefined);
}

export function forget(id: string): void {
  const { [id]: _gone, ...rest } = talks.value;
  talks.value = rest;
  del(id).catch(() => undefined);
  if (current.value === id) current.value = newest.value[0]?.id ?? "";
  if (!current.value) start();
}
