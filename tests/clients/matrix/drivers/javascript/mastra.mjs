// Mastra's MCP client.

import { MCPClient } from "@mastra/mcp";

import { Driver, main } from "./driver.mjs";

class Mastra extends Driver {
  async connect() {
    const { url, command } = this.target;
    const server = url
      ? { url: new URL(url) }
      : { command: command[0], args: command.slice(1), env: this.environment };
    // Two clients with the same servers need different ids.
    const id = `driver-${Math.random()}`;
    this.client = new MCPClient({ id, servers: { it: server } });
    this.byName = await this.client.listTools();
  }

  close() {
    return this.client.disconnect();
  }

  async listTools() {
    return Object.keys(this.byName).map((name) => name.replace(/^it_/, ""));
  }

  async callTool(name, args) {
    try {
      const result = await this.byName[`it_${name}`].execute(args, {});
      if (result.content === undefined) return { text: JSON.stringify(result), structured: result };
      return {
        text: result.content.map((item) => item.text ?? "").join(""),
        isError: result.isError ?? false,
        structured: result.structuredContent,
        types: result.content.map((item) => item.type),
      };
    } catch (error) {
      return { text: String(error), isError: true };
    }
  }

  async resources() {
    const { it } = await this.client.resources.list();
    const text = await this.#read("note://today");
    const picture = await this.#read("note://picture");
    return { uris: it.map(({ uri }) => uri).sort(), text: text.text, blob: picture.blob.slice(0, 6) };
  }

  async templates() {
    const { it } = await this.client.resources.templates();
    const { text } = await this.#read("note://by-day/Monday");
    return { templates: it.map(({ uriTemplate }) => uriTemplate), text };
  }

  async #read(uri) {
    return (await this.client.resources.read("it", uri)).contents[0];
  }

  async subscriptions() {
    const updated = new Promise((resolve) => this.client.resources.onUpdated("it", resolve));
    await this.client.resources.subscribe("it", "note://today");
    await this.callTool("change_note", {});
    await updated;
    return "notified";
  }

  async prompts() {
    const { it } = await this.client.prompts.list();
    const prompt = { serverName: "it", name: "recommend", args: { city: "Rome" } };
    const { messages } = await this.client.prompts.get(prompt);
    return { names: it.map(({ name }) => name), text: messages[0].content.text };
  }
}

await main(Mastra);
