// AI SDK: @ai-sdk/openai-compatible. It has no log probabilities.
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { Output, embedMany, generateText, jsonSchema, stepCountIs, streamText, tool } from "ai";
import {
  ASK, KEY, MODEL, OPENAI, PARAMETERS, QUESTION, SCHEMA, TEXTS, checkCall, checkParts, checkText,
  checkVectors, checkWeather, run, weather,
} from "./feature.mjs";

const provider = createOpenAICompatible({
  name: "llama-py", baseURL: OPENAI, apiKey: KEY, supportsStructuredOutputs: true,
});
const model = provider(MODEL);

run("ai", {
  chat: async () => checkText((await generateText({ model, prompt: ASK })).text),
  stream: async () => checkParts(streamText({ model, prompt: ASK }).textStream),
  tools: async () => {
    const called = tool({
      description: "Weather of a place.",
      inputSchema: jsonSchema(PARAMETERS),
      execute: async (input) => weather(input),
    });
    const how = { model, prompt: QUESTION, tools: { weather: called }, stopWhen: stepCountIs(2) };
    return checkCall((await generateText(how)).text);
  },
  schema: async () => {
    const output = Output.object({ schema: jsonSchema(SCHEMA) });
    return checkWeather((await generateText({ model, prompt: QUESTION, output })).output);
  },
  embeddings: async () => {
    const found = await embedMany({ model: provider.embeddingModel(MODEL), values: TEXTS });
    return checkVectors(found.embeddings);
  },
});
