// The AI SDK's MCP client.

import { createMCPClient, ElicitationRequestSchema } from "@ai-sdk/mcp";
import { StdioMCPTransport } from "@ai-sdk/mcp/mcp-stdio";

import { Driver, main, plain } from "./driver.mjs";

class AISDK extends Driver {
  async connect() {
    this.client = await createMCPClient({ transport: this.#transport(), capabilities: { elicitation: {} } });
    const content = { city: "Rome", days: 3 };
    this.client.onElicitationRequest(ElicitationRequestSchema, async () => ({ action: "accept", content }));
    this.toolSet = await this.client.tools();
  }

  #transport() {
    const { transport, url, command } = this.target;
    if (transport !== "stdio") return { type: transport, url };
    return new StdioMCPTransport({ command: command[0], args: command.slice(1), env: this.environment });
  }

  close() {
    return this.client.close();
  }

  async listTools() {
    return Object.keys(this.toolSet);
  }

  async callTool(name, args) {
    return plain(await this.toolSet[name].execute(args, { toolCallId: "1", messages: [] }));
  }

  async elicitation() {
    return (await this.callTool("ask_user", {})).text;
  }

  async resources() {
    const { resources } = await this.client.listResources();
    const text = await this.#read("note://today");
    const picture = await this.#read("note://picture");
    return { uris: resources.map(({ uri }) => uri).sort(), text: text.text, blob: picture.blob.slice(0, 6) };
  }

  async templates() {
    const { resourceTemplates } = await this.client.listResourceTemplates();
    const { text } = await this.#read("note://by-day/Monday");
    return { templates: resourceTemplates.map(({ uriTemplate }) => uriTemplate), text };
  }

  async #read(uri) {
    return (await this.client.readResource({ uri })).contents[0];
  }

  async prompts() {
    const { prompts } = await this.client.listPrompts();
    const { messages } = await this.client.getPrompt({ name: "recommend", arguments: { city: "Rome" } });
    return { names: prompts.map(({ name }) => name), text: messages[0].content.text };
  }
}

await main(AISDK);
