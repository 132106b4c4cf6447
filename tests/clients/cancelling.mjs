// The official TypeScript SDK's client, which cancels calls and then waits:
//
//   node cancelling.mjs (1|2) URL TOOL (abort|timeout) COUNT SECONDS
//
// Prints "alive" if the session still answers a ping after so many seconds.

import { setTimeout as sleep } from "node:timers/promises";

const [version, url, tool, how, count, seconds] = process.argv.slice(2);
const client = await connect(new URL(url));
await client.listTools();
await Promise.all(Array.from({ length: Number(count) }, cancelledCall));
await sleep(Number(seconds) * 1000);
await client.ping();
console.log("alive");
process.exit(0);

async function connect(place) {
  const info = { name: "cancelling", version: "1.0.0" };
  if (version === "1") {
    const { Client } = await import("@modelcontextprotocol/sdk/client/index.js");
    const { StreamableHTTPClientTransport } = await import("@modelcontextprotocol/sdk/client/streamableHttp.js");
    const client = new Client(info);
    await client.connect(new StreamableHTTPClientTransport(place));
    return client;
  }
  const { Client, StreamableHTTPClientTransport } = await import("@modelcontextprotocol/client");
  const client = new Client(info, { versionNegotiation: { mode: "legacy" } });
  await client.connect(new StreamableHTTPClientTransport(place));
  return client;
}

async function cancelledCall() {
  const call = { name: tool, arguments: {} };
  const options = { onprogress: () => {} };
  if (how === "timeout") options.timeout = 500;
  else options.signal = AbortSignal.timeout(500);
  try {
    await (version === "1" ? client.callTool(call, undefined, options) : client.callTool(call, options));
  } catch {
    return;
  }
  throw new Error("the call was answered");
}
