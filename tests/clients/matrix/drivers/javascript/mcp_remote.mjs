// mcp-remote, which programs that only know stdio use to reach servers over HTTP. The official TypeScript SDK speaks to it.

import { fileURLToPath } from "node:url";

import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import * as types from "@modelcontextprotocol/sdk/types.js";

import { main } from "./driver.mjs";
import { CAPABILITIES, SDKDriver } from "./sdk_driver.mjs";

const PROXY = fileURLToPath(new URL("../node_modules/mcp-remote/dist/proxy.js", import.meta.url));

class MCPRemote extends SDKDriver {
  async connect() {
    this.client = new Client({ name: "mcp-remote", version: "1.0.0" }, { capabilities: CAPABILITIES });
    this.client.setRequestHandler(types.ElicitRequestSchema, this.answerElicitation);
    this.client.setRequestHandler(types.CreateMessageRequestSchema, this.answerSampling);
    this.client.setRequestHandler(types.ListRootsRequestSchema, this.answerRoots);
    this.client.setNotificationHandler(types.LoggingMessageNotificationSchema, this.hearLog);
    this.client.setNotificationHandler(types.ResourceUpdatedNotificationSchema, this.hear);
    this.client.setNotificationHandler(types.ToolListChangedNotificationSchema, this.hear);
    const { transport, url } = this.target;
    const args = [PROXY, url, "--allow-http", "--transport", `${transport}-only`];
    const command = { command: process.execPath, args, env: this.environment };
    await this.client.connect(new StdioClientTransport(command));
  }

  callOnTheWire(call, options) {
    return this.client.callTool(call, undefined, options);
  }
}

await main(MCPRemote);
