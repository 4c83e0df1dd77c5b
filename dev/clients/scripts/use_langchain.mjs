// @langchain/openai: ChatOpenAI and OpenAIEmbeddings.
import { HumanMessage } from "@langchain/core/messages";
import { tool } from "@langchain/core/tools";
import { ChatOpenAI, OpenAIEmbeddings } from "@langchain/openai";
import {
  ASK, KEY, MODEL, OPENAI, PARAMETERS, QUESTION, SCHEMA, TEXTS, checkCall, checkLogprobs,
  checkParts, checkText, checkVectors, checkWeather, mapParts, run, weather,
} from "./feature.mjs";

const how = { model: MODEL, apiKey: KEY, configuration: { baseURL: OPENAI } };
const model = new ChatOpenAI(how);

run("@langchain/openai", {
  chat: async () => checkText((await model.invoke(ASK)).content),
  stream: async () => {
    return checkParts(mapParts(await model.stream(ASK), (part) => part.content));
  },
  tools: async () => {
    const about = { name: "weather", description: "Weather of a place.", schema: PARAMETERS };
    const called = tool(weather, about);
    const bound = model.bindTools([called]);
    const messages = [new HumanMessage(QUESTION)];
    messages.push(await bound.invoke(messages));
    messages.push(await called.invoke(messages[1].tool_calls[0]));
    return checkCall((await bound.invoke(messages)).content);
  },
  schema: async () => {
    const made = model.withStructuredOutput(SCHEMA, { name: "weather", method: "jsonSchema" });
    return checkWeather(await made.invoke(QUESTION));
  },
  embeddings: async () => checkVectors(await new OpenAIEmbeddings(how).embedDocuments(TEXTS)),
  logprobs: async () => {
    const found = await new ChatOpenAI({ ...how, logprobs: true }).invoke(ASK);
    return checkLogprobs(found.response_metadata.logprobs.content.map((one) => one.logprob));
  },
});
