// openai (npm): chat completions and embeddings.
import OpenAI from "openai";
import {
  KEY, MESSAGES, MODEL, OPENAI, QUESTIONS, SCHEMA, TEXTS, FUNCTION, checkCall, checkLogprobs,
  checkParts, checkText, checkVectors, checkWeather, mapParts, run, weather,
} from "./feature.mjs";

const client = new OpenAI({ baseURL: OPENAI, apiKey: KEY });
const format = { type: "json_schema", json_schema: { name: "weather", schema: SCHEMA } };

function create(messages, more = {}) {
  return client.chat.completions.create({ model: MODEL, messages, ...more });
}

run("openai", {
  chat: async () => checkText((await create(MESSAGES)).choices[0].message.content),
  stream: async () => {
    const chunks = await create(MESSAGES, { stream: true });
    return checkParts(mapParts(chunks, (chunk) => chunk.choices[0].delta.content));
  },
  tools: async () => {
    const called = { ...FUNCTION, function: weather, parse: JSON.parse };
    const tools = [{ type: "function", function: called }];
    const runner = client.chat.completions.runTools({ model: MODEL, messages: QUESTIONS, tools });
    return checkCall(await runner.finalContent());
  },
  schema: async () => {
    const { choices } = await create(QUESTIONS, { response_format: format });
    return checkWeather(choices[0].message.content);
  },
  embeddings: async () => {
    const { data } = await client.embeddings.create({ model: MODEL, input: TEXTS });
    return checkVectors(data.map((row) => row.embedding));
  },
  logprobs: async () => {
    const { choices } = await create(MESSAGES, { logprobs: true, top_logprobs: 2 });
    return checkLogprobs(choices[0].logprobs.content.map((one) => one.logprob));
  },
});
