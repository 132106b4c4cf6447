// The official TypeScript SDK's client 1.x, which leaves while a tool runs:
//
//   node leaving.mjs TOOL COMMAND...
//
// Prints how many seconds the client took to leave.

import { setTimeout as sleep } from "node:timers/promises";

import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";

const [tool, command, ...args] = process.argv.slice(2);
const client = new Client({ name: "leaving", version: "1.0.0" });
await client.connect(new StdioClientTransport({ command, args }));
client.callTool({ name: tool, arguments: {} }).catch(() => {});
await sleep(1000);
const started = performance.now();
await client.close();
console.log((performance.now() - started) / 1000);
process.exit(0);
