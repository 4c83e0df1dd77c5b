// @anthropic-ai/sdk. Its API has no embeddings and no log probabilities.
import Anthropic from "@anthropic-ai/sdk";
import {
  KEY, MESSAGES, MODEL, PARAMETERS, QUESTIONS, SCHEMA, URL, checkCall, checkParts, checkText,
  checkWeather, mapParts, run, weather,
} from "./feature.mjs";

const { messages } = new Anthropic({ baseURL: URL, apiKey: KEY });
const how = { model: MODEL, max_tokens: 100 };
const tools = [{ name: "weather", description: "Weather of a place.", input_schema: PARAMETERS }];

run("@anthropic-ai/sdk", {
  chat: async () => checkText((await messages.create({ ...how, messages: MESSAGES })).content[0].text),
  stream: async () => {
    const events = messages.stream({ ...how, messages: MESSAGES });
    return checkParts(mapParts(events, (event) => event.delta?.text));
  },
  tools: async () => {
    const { content } = await messages.create({ ...how, messages: QUESTIONS, tools });
    const { id, input } = content.find((block) => block.type === "tool_use");
    const result = { type: "tool_result", tool_use_id: id, content: weather(input) };
    const said = [{ role: "assistant", content }, { role: "user", content: [result] }];
    const last = await messages.create({ ...how, messages: [...QUESTIONS, ...said], tools });
    return checkCall(last.content[0].text);
  },
  schema: async () => {
    const output_config = { format: { type: "json_schema", schema: SCHEMA } };
    const found = await messages.create({ ...how, messages: QUESTIONS, output_config });
    return checkWeather(found.content[0].text);
  },
});
