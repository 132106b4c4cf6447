// What both small servers offer, written with the TypeScript SDK 1.x or 2.x: what conversation.mjs asks for.

import { setTimeout as sleep } from "node:timers/promises";
import { parseArgs } from "node:util";

import { z } from "zod";

export const NAME = { name: "small server", version: "1.0.0" };

const CITIES = { "New York": "Partly cloudy", London: "Light rain", Nairobi: "Sunny" };

const text = (said) => ({ content: [{ type: "text", text: said }] });

// `tell` sends a notification in the course of a call, of which each version has its own notion.
export function offer(server, tell, { ResourceTemplate, completable }) {
  server.registerTool("get_weather", { inputSchema: z.object({ location: z.string() }) }, ({ location }) => {
    if (!(location in CITIES)) throw new Error(`there is no ${location} in the sample`);
    return text(CITIES[location]);
  });
  const numbers = { inputSchema: z.object({ a: z.number(), b: z.number() }) };
  server.registerTool("calculate_sum", numbers, ({ a, b }) => text(String(a + b)));
  const counting = { inputSchema: z.object({ steps: z.number().int(), seconds: z.number() }) };
  server.registerTool("count_slowly", counting, async ({ steps, seconds }, context) => {
    for (let step = 1; step <= steps; step += 1) {
      await tell(context, { progress: step, total: steps, message: `step ${step} of ${steps}` });
      await sleep(seconds * 1000);
    }
    return text(`Counted to ${steps}`);
  });
  const about = (uri) => ({ contents: [{ uri: uri.href, mimeType: "text/plain", text: "A small server." }] });
  server.registerResource("about", "sample://about", { mimeType: "text/plain" }, about);
  const cities = new ResourceTemplate("sample://cities/{name}", { list: undefined });
  const city = (uri, { name }) => ({ contents: [{ uri: uri.href, text: CITIES[name] }] });
  server.registerResource("city", cities, {}, city);
  const begun = (value) => Object.keys(CITIES).filter((name) => name.toLowerCase().startsWith(value));
  const postcard = { argsSchema: { city: completable(z.string(), begun) } };
  server.registerPrompt("write_postcard", postcard, ({ city: from }) => ({
    messages: [{ role: "user", content: { type: "text", text: `Write a postcard from ${from}.` } }],
  }));
}

// Where to serve: a port for HTTP, else undefined, for stdio.
export function chosenPort() {
  const { values } = parseArgs({ options: { http: { type: "string" } } });
  return values.http === undefined ? undefined : Number(values.http);
}
