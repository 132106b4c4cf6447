// A small server written with the TypeScript SDK 2.x (@modelcontextprotocol/server), in both eras:
//
//   node typescript_server_v2.mjs [--http PORT]
//
// Over HTTP, where it has no sessions, else over stdio.

import { createServer } from "node:http";

import { toNodeHandler } from "@modelcontextprotocol/node";
import { McpServer, ResourceTemplate, completable, createMcpHandler } from "@modelcontextprotocol/server";
import { serveStdio } from "@modelcontextprotocol/server/stdio";

import { NAME, chosenPort, offer } from "./offers.mjs";

function tell({ mcpReq }, params) {
  const progressToken = mcpReq._meta?.progressToken;
  return mcpReq.notify({ method: "notifications/progress", params: { progressToken, ...params } });
}

function makeServer() {
  const server = new McpServer(NAME);
  offer(server, tell, { ResourceTemplate, completable });
  return server;
}

const port = chosenPort();
if (port === undefined) serveStdio(makeServer);
else createServer(toNodeHandler(createMcpHandler(makeServer))).listen(port, "127.0.0.1");
