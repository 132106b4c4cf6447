// The official TypeScript SDK, 2.x.

import { Client, SSEClientTransport, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";

import { main } from "./driver.mjs";
import { CAPABILITIES, SDKDriver, STATELESS } from "./sdk_driver.mjs";

class SDK2 extends SDKDriver {
  get #isStateless() {
    return this.target.revision === STATELESS;
  }

  async connect() {
    const versionNegotiation = { mode: this.#isStateless ? "auto" : "legacy" };
    const options = { versionNegotiation, capabilities: CAPABILITIES };
    this.client = new Client({ name: "sdk-2", version: "1.0.0" }, options);
    this.client.setRequestHandler("elicitation/create", this.answerElicitation);
    this.client.setRequestHandler("sampling/createMessage", this.answerSampling);
    this.client.setRequestHandler("roots/list", this.answerRoots);
    this.client.setNotificationHandler("notifications/message", this.hearLog);
    this.client.setNotificationHandler("notifications/resources/updated", this.hear);
    this.client.setNotificationHandler("notifications/tools/list_changed", this.hear);
    await this.client.connect(this.#transport());
  }

  #transport() {
    const { transport, url, command } = this.target;
    if (transport === "http") return new StreamableHTTPClientTransport(new URL(url));
    if (transport === "sse") return new SSEClientTransport(new URL(url));
    return new StdioClientTransport({ command: command[0], args: command.slice(1), env: this.environment });
  }

  callOnTheWire(call, options) {
    return this.client.callTool(call, options);
  }

  async logging() {
    if (!this.#isStateless) return super.logging();
    const _meta = { "io.modelcontextprotocol/logLevel": "info" };
    await this.client.callTool({ name: "talk", arguments: {}, _meta });
    return this.logged;
  }

  subscribe() {
    if (!this.#isStateless) return super.subscribe();
    return this.client.listen({ resourceSubscriptions: ["note://today"] });
  }

  async listenForTools() {
    if (this.#isStateless) await this.client.listen({ toolsListChanged: true });
  }
}

await main(SDK2);
