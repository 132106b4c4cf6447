// The official TypeScript SDK's client, 2.x (@modelcontextprotocol/client). See conversation.mjs for the arguments.

import { Client, ProtocolError, SSEClientTransport, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";

import { goToBerlin, run } from "./conversation.mjs";

// Left alone, 2.x takes the handshake; in the mode "auto" it asks server/discover first.
async function connect(transport, revision) {
  const mode = revision === "legacy" ? "legacy" : "auto";
  const options = { versionNegotiation: { mode }, capabilities: { elicitation: {} } };
  const client = new Client({ name: "typescript-v2", version: "1.0.0" }, options);
  client.setRequestHandler("elicitation/create", goToBerlin);
  await client.connect(transport);
  return { client, revision: client.getNegotiatedProtocolVersion(), hasPing: client.getProtocolEra() === "legacy" };
}

await run({
  package: "@modelcontextprotocol/client",
  transports: { stdio: StdioClientTransport, url: StreamableHTTPClientTransport, sse: SSEClientTransport },
  ErrorOnTheWire: ProtocolError,
  callTool: (client, call, options) => client.callTool(call, options),
  connect,
});
