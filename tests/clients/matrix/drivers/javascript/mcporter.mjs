// mcporter's runtime.

import { createRuntime } from "mcporter";

import { Driver, main, plain } from "./driver.mjs";

class MCPorter extends Driver {
  async connect() {
    const { url, command } = this.target;
    const spec = url
      ? { kind: "http", url: new URL(url) }
      : { kind: "stdio", command: command[0], args: command.slice(1), cwd: process.cwd() };
    this.runtime = await createRuntime({ servers: [{ name: "it", command: spec }] });
  }

  close() {
    return this.runtime.close();
  }

  async listTools() {
    return (await this.runtime.listTools("it")).map((tool) => tool.name);
  }

  async callTool(name, args) {
    return plain(await this.runtime.callTool("it", name, { args }));
  }

  async resources() {
    const { resources } = await this.runtime.listResources("it");
    const text = await this.#read("note://today");
    const picture = await this.#read("note://picture");
    return { uris: resources.map(({ uri }) => uri).sort(), text: text.text, blob: picture.blob.slice(0, 6) };
  }

  async #read(uri) {
    return (await this.runtime.readResource("it", uri)).contents[0];
  }
}

await main(MCPorter);
