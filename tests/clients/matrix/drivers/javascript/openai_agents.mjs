// The OpenAI Agents SDK's MCP servers.

import { MCPServerSSE, MCPServerStdio, MCPServerStreamableHttp } from "@openai/agents";

import { Driver, main, plain } from "./driver.mjs";

class OpenAIAgents extends Driver {
  async connect() {
    this.server = this.#server();
    await this.server.connect();
  }

  #server() {
    const { transport, url, command } = this.target;
    if (transport === "http") return new MCPServerStreamableHttp({ url });
    if (transport === "sse") return new MCPServerSSE({ url });
    return new MCPServerStdio({ command: command[0], args: command.slice(1), env: this.environment });
  }

  close() {
    return this.server.close();
  }

  async listTools() {
    return (await this.server.listTools()).map((tool) => tool.name);
  }

  async callTool(name, args) {
    return plain(await this.server.callToolResult(name, args));
  }

  async resources() {
    const { resources } = await this.server.listResources();
    const text = await this.#read("note://today");
    const picture = await this.#read("note://picture");
    return { uris: resources.map(({ uri }) => uri).sort(), text: text.text, blob: picture.blob.slice(0, 6) };
  }

  async templates() {
    const { resourceTemplates } = await this.server.listResourceTemplates();
    const { text } = await this.#read("note://by-day/Monday");
    return { templates: resourceTemplates.map(({ uriTemplate }) => uriTemplate), text };
  }

  async #read(uri) {
    return (await this.server.readResource(uri)).contents[0];
  }
}

await main(OpenAIAgents);
