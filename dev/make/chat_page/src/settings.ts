// What is sent with each request. An empty field is not sent: the server's own default counts.

export interface Field {
  key: string;
  label: string;
  about: string;
  min: number;
  max: number;
  step: number;
}

export const FIELDS: Field[] = [
  { key: "temperature", label: "Temperature", about: "randomness; 0: most likely token", min: 0, max: 5, step: 0.05 },
  { key: "top_k", label: "Top k", about: "number of candidate tokens; 0: all", min: 0, max: 1000, step: 1 },
  { key: "top_p", label: "Top p", about: "total probability of the candidates; 1: all", min: 0, max: 1, step: 0.01 },
  { key: "min_p", label: "Min p", about: "least probability, relative to the most likely token", min: 0, max: 1, step: 0.01 },
  { key: "repeat_penalty", label: "Repeat penalty", about: "1: none", min: 0.5, max: 2, step: 0.01 },
  { key: "presence_penalty", label: "Presence penalty", about: "0: none", min: -2, max: 2, step: 0.1 },
  { key: "frequency_penalty", label: "Frequency penalty", about: "0: none", min: -2, max: 2, step: 0.1 },
  { key: "max_tokens", label: "Response limit", about: "tokens; empty: no limit", min: 1, max: 1e6, step: 1 },
  { key: "seed", label: "Seed", about: "empty: random", min: 0, max: 4294967295, step: 1 },
];

export type Settings = Record<string, number>;

/** A number within the field's bounds, or null for an empty or wrong text. */
export function read(field: Field, text: string): number | null {
  const value = Number(text);
  if (text.trim() === "" || !Number.isFinite(value)) return null;
  return Math.min(Math.max(value, field.min), field.max);
}
