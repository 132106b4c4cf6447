// The official TypeScript SDK's client, 1.x (@modelcontextprotocol/sdk). See conversation.mjs for the arguments.

import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { SSEClientTransport } from "@modelcontextprotocol/sdk/client/sse.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { ElicitRequestSchema, McpError } from "@modelcontextprotocol/sdk/types.js";

import { goToBerlin, run } from "./conversation.mjs";

// 1.x has the handshake alone, and tells the revision only to its transport.
async function connect(transport) {
  let revision;
  const tell = transport.setProtocolVersion?.bind(transport);
  transport.setProtocolVersion = (agreed) => {
    revision = agreed;
    tell?.(agreed);
  };
  const client = new Client({ name: "typescript-v1", version: "1.0.0" }, { capabilities: { elicitation: {} } });
  client.setRequestHandler(ElicitRequestSchema, goToBerlin);
  await client.connect(transport);
  return { client, revision, hasPing: true };
}

await run({
  package: "@modelcontextprotocol/sdk",
  transports: { stdio: StdioClientTransport, url: StreamableHTTPClientTransport, sse: SSEClientTransport },
  ErrorOnTheWire: McpError,
  callTool: (client, call, options) => client.callTool(call, undefined, options),
  connect,
});
