// ollama (npm).
import { Ollama } from "ollama";
import {
  MESSAGES, MODEL, QUESTIONS, SCHEMA, TEXTS, TOOL, URL, checkCall, checkLogprobs, checkParts,
  checkText, checkVectors, checkWeather, mapParts, run, weather,
} from "./feature.mjs";

const client = new Ollama({ host: URL });

function ask(messages, more = {}) {
  return client.chat({ model: MODEL, messages, ...more });
}

run("ollama", {
  chat: async () => checkText((await ask(MESSAGES)).message.content),
  stream: async () => {
    const parts = await ask(MESSAGES, { stream: true });
    return checkParts(mapParts(parts, (part) => part.message.content));
  },
  tools: async () => {
    const { message } = await ask(QUESTIONS, { tools: [TOOL] });
    const call = message.tool_calls[0].function;
    const result = { role: "tool", tool_name: call.name, content: weather(call.arguments) };
    const last = await ask([...QUESTIONS, message, result], { tools: [TOOL] });
    return checkCall(last.message.content);
  },
  schema: async () => checkWeather((await ask(QUESTIONS, { format: SCHEMA })).message.content),
  embeddings: async () => {
    return checkVectors((await client.embed({ model: MODEL, input: TEXTS })).embeddings);
  },
  logprobs: async () => {
    const found = await ask(MESSAGES, { logprobs: true, top_logprobs: 2 });
    return checkLogprobs(found.logprobs.map((one) => one.logprob));
  },
});
