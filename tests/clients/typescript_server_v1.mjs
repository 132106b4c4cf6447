// A small server written with the TypeScript SDK 1.x (@modelcontextprotocol/sdk):
//
//   node typescript_server_v1.mjs [--http PORT]
//
// Over HTTP, where it has sessions, else over stdio.

import { randomUUID } from "node:crypto";
import { createServer } from "node:http";

import { completable } from "@modelcontextprotocol/sdk/server/completable.js";
import { McpServer, ResourceTemplate } from "@modelcontextprotocol/sdk/server/mcp.js";
import { StdioServerTransport } from "@modelcontextprotocol/sdk/server/stdio.js";
import { StreamableHTTPServerTransport } from "@modelcontextprotocol/sdk/server/streamableHttp.js";

import { NAME, chosenPort, offer } from "./offers.mjs";

function tell({ _meta, sendNotification }, params) {
  const progressToken = _meta?.progressToken;
  return sendNotification({ method: "notifications/progress", params: { progressToken, ...params } });
}

async function serveOn(transport) {
  const server = new McpServer(NAME);
  offer(server, tell, { ResourceTemplate, completable });
  await server.connect(transport);
  return transport;
}

const sessions = new Map();

// The one of the session, or of a new one.
async function transportFor(id) {
  if (id !== undefined) return sessions.get(id);
  const transport = new StreamableHTTPServerTransport({
    sessionIdGenerator: randomUUID,
    onsessioninitialized: (given) => sessions.set(given, transport),
  });
  return serveOn(transport);
}

async function answer(request, response) {
  const transport = await transportFor(request.headers["mcp-session-id"]);
  if (transport) await transport.handleRequest(request, response);
  else response.writeHead(404).end();
}

const port = chosenPort();
if (port === undefined) await serveOn(new StdioServerTransport());
else createServer(answer).listen(port, "127.0.0.1");
