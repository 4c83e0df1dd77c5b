// Checks of each feature of a client of npm, which print one JSON line per feature (feature.py).
import { readFileSync } from "node:fs";

export const URL = process.argv[2] ?? "http://localhost:8080";
export const OPENAI = `${URL}/v1`, MODEL = "demo", KEY = "none";
export const ASK = "Good morrow, Juliet.", QUESTION = "How is the weather here?", RESULT = "It is sunny.";
export const TEXTS = ["Two households", "a glooming peace"];
export const MESSAGES = [{ role: "user", content: ASK }];
export const QUESTIONS = [{ role: "user", content: QUESTION }];
export const PLACE = { type: "string", enum: ["here", "there"] };
export const PARAMETERS = { type: "object", properties: { place: PLACE }, required: ["place"] };
export const FUNCTION = {
  name: "weather", description: "Weather of a place.", parameters: PARAMETERS,
};
export const TOOL = { type: "function", function: FUNCTION };
export const SCHEMA = {
  type: "object",
  properties: { place: PLACE, sunny: { type: "boolean" } },
  required: ["place", "sunny"],
  additionalProperties: false,
};
const FEATURES = ["chat", "stream", "tools", "schema", "embeddings", "logprobs"];
const SECONDS = 120;
const calls = [];

function demand(holds, said) {
  if (!holds) throw new Error(said);
}

export function weather({ place }) {
  calls.push(place);
  return RESULT;
}

export function checkText(text) {
  demand(typeof text === "string" && text.trim(), `a text, got ${JSON.stringify(text)}`);
  return text;
}

export async function checkParts(parts) {
  const found = [];
  for await (const part of parts) if (part) found.push(part);
  demand(found.length > 1, `a stream of several parts, got ${JSON.stringify(found)}`);
  return checkText(found.join(""));
}

export async function* mapParts(parts, change) {
  for await (const part of parts) yield change(part);
}

export function checkCall(answer) {
  demand(calls.length, `no call of the tool; the response was ${JSON.stringify(answer)}`);
  demand(PLACE.enum.includes(calls.at(-1)), `the argument ${calls.at(-1)}`);
  return checkText(answer);
}

export function checkWeather(value) {
  const found = typeof value === "string" ? JSON.parse(value) : value;
  demand(PLACE.enum.includes(found.place) && typeof found.sunny === "boolean",
    `got ${JSON.stringify(found)}`);
  return JSON.stringify(found);
}

export function checkVectors([first, second]) {
  demand(first.length > 1 && first.length === second.length && first[0] !== second[0], "vectors");
  demand([...first, ...second].every(Number.isFinite), "finite values");
  return `2 x ${first.length}`;
}

export function checkLogprobs(values) {
  demand(values.length > 1 && values.every((x) => x <= 0), `got ${JSON.stringify(values)}`);
  return `${values.length} tokens`;
}

export async function run(name, features) {
  const file = `node_modules/${name}/package.json`;
  const { version } = JSON.parse(readFileSync(file, "utf8"));
  for (const feature of FEATURES) {
    const [ok, said] = features[feature] ? await attempt(features[feature]) : [null, ""];
    console.log(JSON.stringify({ client: name, version, feature, ok, said }));
  }
  process.exit(0);
}

async function attempt(feature) {
  calls.length = 0;
  const late = new Promise((_, reject) => {
    setTimeout(() => reject(new Error(`no end within ${SECONDS} s`)), SECONDS * 1000).unref();
  });
  try {
    return [true, (await Promise.race([feature(), late])).slice(0, 200)];
  } catch (error) {
    return [false, String(error).replace(/\s+/g, " ").slice(0, 400)];
  }
}
