// Make the calls that a JSON file lists, with the official TypeScript SDK's client, 2.x, and print the results.
//
// node calls.mjs CALLS.json -- COMMAND...

import { readFileSync } from "node:fs";

import { Client } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";

const [calls, , command, ...args] = process.argv.slice(2);
const client = new Client({ name: "calls", version: "1.0.0" });
await client.connect(new StdioClientTransport({ command, args, env: process.env }));
const said = [await client.listTools()];
for (const [name, given] of JSON.parse(readFileSync(calls, "utf-8"))) {
  said.push(await client.callTool({ name, arguments: given }));
}
console.log(JSON.stringify(said));
await client.close();
