// One conversation with an MCP server, the same for both versions of the TypeScript SDK:
//
//   node typescript_vN.mjs [--revision legacy|newest] (-- COMMAND... | --url URL | --sse URL)
//
// Prints what the client saw as one JSON object.

import { readFile } from "node:fs/promises";
import { parseArgs } from "node:util";

const SECONDS = 30;

export async function run(sdk) {
  const watchdog = setTimeout(() => fail(new Error(`not done after ${SECONDS} s`)), SECONDS * 1000);
  try {
    const report = await converse(sdk, parsedArguments());
    process.stdout.write(`${JSON.stringify(report)}\n`);
  } catch (error) {
    fail(error);
  }
  clearTimeout(watchdog);
}

function fail(error) {
  console.error(error);
  process.exit(1);
}

function parsedArguments() {
  const text = { type: "string" };
  const options = { url: text, sse: text, revision: { ...text, default: "newest" } };
  const { values, positionals } = parseArgs({ options, allowPositionals: true });
  if (!["legacy", "newest"].includes(values.revision)) {
    throw new Error(`--revision is legacy or newest, not ${values.revision}`);
  }
  if ([values.url, values.sse, positionals.length > 0].filter(Boolean).length !== 1) {
    throw new Error("one of these is wanted: -- COMMAND..., --url URL, --sse URL");
  }
  return { ...values, command: positionals };
}

async function converse(sdk, args) {
  const transport = makeTransport(sdk.transports, args);
  const { client, revision, hasPing } = await sdk.connect(transport, args.sse ? "legacy" : args.revision);
  try {
    return await talk(sdk, client, revision, hasPing);
  } finally {
    await client.close();
  }
}

function makeTransport(transports, { url, sse, command }) {
  if (url) return new transports.url(new URL(url));
  if (sse) return new transports.sse(new URL(sse));
  // Left alone, the SDK hands the server six variables of its own choice.
  return new transports.stdio({ command: command[0], args: command.slice(1), env: process.env });
}

async function talk(sdk, client, revision, hasPing) {
  if (hasPing) await client.ping();
  const capabilities = client.getServerCapabilities();
  return {
    sdk: await nameAndVersion(sdk),
    revision,
    server: client.getServerVersion() ?? null,
    capabilities,
    ping: hasPing,
    ...(await tools(sdk, client)),
    ...(await resources(client, capabilities)),
    ...(await prompts(client, capabilities)),
  };
}

async function tools(sdk, client) {
  const call = (name, args) => client.callTool({ name, arguments: args });
  // The tools come first: from their list the SDK takes the output schemas that it checks the results against.
  const listed = await everything((page) => client.listTools(page), "tools");
  const weather = await call("get_weather", { location: "New York" });
  const names = listed.map((tool) => tool.name);
  return {
    tools: names,
    weather: textOf(weather),
    weather_is_error: weather.isError ?? false,
    sum: JSON.parse(textOf(await call("calculate_sum", { a: 2, b: 3.5 }))),
    bad_arguments: await outcome(sdk, call("get_weather", {})),
    unknown_tool: await outcome(sdk, call("no_such_tool", {})),
    counted: names.includes("count_slowly") ? await counted(sdk, client) : null,
    trip: names.includes("plan_trip") ? await outcome(sdk, call("plan_trip", {})) : null,
    report: names.includes("print_report") ? await outcome(sdk, call("print_report", { pages: 2 })) : null,
    only_as_task: await outcome(sdk, call("only_as_task", {})),
  };
}

// What a tool tells while it works, and then.
async function counted(sdk, client) {
  const told = [];
  const onprogress = ({ progress, total, message }) => told.push([progress, total, message]);
  const call = { name: "count_slowly", arguments: { steps: 3, seconds: 0.05 } };
  const result = await sdk.callTool(client, call, { onprogress });
  return { progress: told, text: textOf(result) };
}

// The user's answer, whatever the server asks.
export function goToBerlin() {
  return { action: "accept", content: { city: "Berlin", days: 2 } };
}

// The resources of a server that says it has them, and what is in the first.
async function resources(client, capabilities) {
  if (!capabilities.resources) return { resources: [] };
  const listed = await everything((page) => client.listResources(page), "resources");
  const templates = await everything((page) => client.listResourceTemplates(page), "resourceTemplates");
  const found = await Promise.all(listed.slice(0, 1).map(({ uri }) => client.readResource({ uri })));
  return {
    resources: listed.map((resource) => resource.uri),
    templates: templates.map((template) => template.uriTemplate),
    read: found.flatMap((result) => result.contents.map((contents) => contents.text)),
  };
}

// The prompts of a server that says it has them, and what the first, which is about a city, says.
async function prompts(client, capabilities) {
  if (!capabilities.prompts) return { prompts: [] };
  const listed = await everything((page) => client.listPrompts(page), "prompts");
  const report = { prompts: listed.map((prompt) => prompt.name) };
  for (const name of report.prompts.slice(0, 1)) {
    report.messages = (await client.getPrompt({ name, arguments: { city: "London" } })).messages;
    if (capabilities.completions) {
      const question = { ref: { type: "ref/prompt", name }, argument: { name: "city", value: "n" } };
      report.completed = (await client.complete(question)).completion.values;
    }
  }
  return report;
}

// The items of all pages.
async function everything(listPage, field) {
  const items = [];
  let cursor;
  do {
    const page = await listPage(cursor === undefined ? undefined : { cursor });
    items.push(...page[field]);
    cursor = page.nextCursor;
  } while (cursor !== undefined);
  return items;
}

// A call that should go wrong: as a JSON-RPC error, or as a result that says so.
async function outcome(sdk, call) {
  try {
    const result = await call;
    return { kind: "result", is_error: result.isError ?? false, text: textOf(result) };
  } catch (error) {
    if (!(error instanceof sdk.ErrorOnTheWire)) throw error;
    return { kind: "error", code: error.code, text: error.message, data: error.data ?? null };
  }
}

function textOf(result) {
  return result.content.map((item) => (item.type === "text" ? item.text : "")).join("");
}

async function nameAndVersion(sdk) {
  const url = new URL(`./node_modules/${sdk.package}/package.json`, import.meta.url);
  const { version } = JSON.parse(await readFile(url, "utf8"));
  return `${sdk.package} ${version}`;
}
