// The Inspector's command line: each request is a command of its own.

import { execFile } from "node:child_process";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

import { Driver, main, plain, Unsupported } from "./driver.mjs";

const LAUNCHER = "../node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js";
const run = promisify(execFile);

class Inspector extends Driver {
  async connect() {}

  async close() {}

  async #request(method, ...options) {
    const { transport, url, command } = this.target;
    const request = ["--method", method, ...options];
    const environment = ["-e", `LIFESPAN_FILE=${process.env.LIFESPAN_FILE}`];
    const words = url
      ? [url, "--transport", transport, ...request]
      : [...environment, ...request, "--", ...command];
    const launcher = fileURLToPath(new URL(LAUNCHER, import.meta.url));
    const { stdout } = await run(process.execPath, [launcher, "--cli", ...words]).catch(
      // Its exit code says that the tool failed.
      (error) => (error.stdout ? error : Promise.reject(error)),
    );
    return JSON.parse(stdout);
  }

  async listTools() {
    return (await this.#request("tools/list")).tools.map((tool) => tool.name);
  }

  async callTool(name, args) {
    const pairs = Object.entries(args).flatMap(([key, value]) => {
      const text = typeof value === "string" ? value : JSON.stringify(value);
      return ["--tool-arg", `${key}=${text}`];
    });
    return plain(await this.#request("tools/call", "--tool-name", name, ...pairs));
  }

  async parallel_calls() {
    throw new Unsupported("makes one call each time it is started");
  }

  async resources() {
    const { resources } = await this.#request("resources/list");
    const text = await this.#read("note://today");
    const picture = await this.#read("note://picture");
    return { uris: resources.map(({ uri }) => uri).sort(), text: text.text, blob: picture.blob.slice(0, 6) };
  }

  async templates() {
    const { resourceTemplates } = await this.#request("resources/templates/list");
    const { text } = await this.#read("note://by-day/Monday");
    return { templates: resourceTemplates.map(({ uriTemplate }) => uriTemplate), text };
  }

  async #read(uri) {
    return (await this.#request("resources/read", "--uri", uri)).contents[0];
  }

  async prompts() {
    const { prompts } = await this.#request("prompts/list");
    const options = ["--prompt-name", "recommend", "--prompt-args", "city=Rome"];
    const { messages } = await this.#request("prompts/get", ...options);
    return { names: prompts.map(({ name }) => name), text: messages[0].content.text };
  }
}

await main(Inspector);
