// The official TypeScript SDK, 1.x.

import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { SSEClientTransport } from "@modelcontextprotocol/sdk/client/sse.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { WebSocketClientTransport } from "@modelcontextprotocol/sdk/client/websocket.js";
import * as types from "@modelcontextprotocol/sdk/types.js";

import { main } from "./driver.mjs";
import { CAPABILITIES, SDKDriver } from "./sdk_driver.mjs";

class SDK1 extends SDKDriver {
  async connect() {
    this.client = new Client({ name: "sdk-1", version: "1.0.0" }, { capabilities: CAPABILITIES });
    this.client.setRequestHandler(types.ElicitRequestSchema, this.answerElicitation);
    this.client.setRequestHandler(types.CreateMessageRequestSchema, this.answerSampling);
    this.client.setRequestHandler(types.ListRootsRequestSchema, this.answerRoots);
    this.client.setNotificationHandler(types.LoggingMessageNotificationSchema, this.hearLog);
    this.client.setNotificationHandler(types.ResourceUpdatedNotificationSchema, this.hear);
    this.client.setNotificationHandler(types.ToolListChangedNotificationSchema, this.hear);
    await this.client.connect(this.#transport());
  }

  #transport() {
    const { transport, url, command } = this.target;
    if (transport === "http") return new StreamableHTTPClientTransport(new URL(url));
    if (transport === "sse") return new SSEClientTransport(new URL(url));
    if (transport === "ws") return new WebSocketClientTransport(new URL(url));
    return new StdioClientTransport({ command: command[0], args: command.slice(1), env: this.environment });
  }

  callOnTheWire(call, options) {
    return this.client.callTool(call, undefined, options);
  }
}

await main(SDK1);
