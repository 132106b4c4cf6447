// The features of both versions of the official TypeScript SDK.

import { Driver, plain } from "./driver.mjs";

export const STATELESS = "2026-07-28";
export const CAPABILITIES = { elicitation: {}, sampling: {}, roots: {} };

export class SDKDriver extends Driver {
  logged = [];
  #heard = new Set();
  #hearing = new Map();

  // What the server asks, and what it notifies of

  answerElicitation = () => ({ action: "accept", content: { city: "Rome", days: 3 } });
  answerSampling = () => ({ role: "assistant", content: { type: "text", text: "Oslo" }, model: "m" });
  answerRoots = () => ({ roots: [{ uri: "file:///work" }] });

  hearLog = ({ params }) => {
    this.logged.push([params.level, params.data]);
  };

  hear = ({ method }) => {
    this.#heard.add(method);
    this.#hearing.get(method)?.();
  };

  async waitFor(method) {
    if (!this.#heard.has(method)) await new Promise((resolve) => this.#hearing.set(method, resolve));
  }

  // Features

  close() {
    return this.client.close();
  }

  async listTools() {
    return (await everything((page) => this.client.listTools(page), "tools")).map((tool) => tool.name);
  }

  async callTool(name, args, options) {
    return plain(await this.callOnTheWire({ name, arguments: args }, options));
  }

  async ping() {
    await this.client.ping();
    return "pong";
  }

  async bad_arguments() {
    return (await this.callTool("greet", {})).isError;
  }

  async unknown_tool() {
    try {
      await this.callTool("no_such_tool", {});
    } catch (error) {
      return error.code;
    }
    return "no error";
  }

  async progress() {
    const steps = [];
    const onprogress = ({ progress, total, message }) => steps.push([progress, total, message]);
    await this.callTool("count", { steps: 3 }, { onprogress });
    return steps;
  }

  async logging() {
    await this.setLogLevel();
    await this.callTool("talk", {});
    return this.logged;
  }

  setLogLevel() {
    return this.client.setLoggingLevel("info");
  }

  async cancellation() {
    const abort = new AbortController();
    const options = { signal: abort.signal, onprogress: () => abort.abort() };
    await this.callTool("wait_for_ever", {}, options).catch(() => {});
    return (await this.callTool("was_cancelled", {})).text;
  }

  async elicitation() {
    return (await this.callTool("ask_user", {})).text;
  }

  async sampling() {
    return (await this.callTool("ask_model", {})).text;
  }

  async roots() {
    return (await this.callTool("ask_roots", {})).text;
  }

  async resumption() {
    return (await this.callTool("drop", {}, { onprogress: () => {} })).text;
  }

  async resources() {
    const listed = await everything((page) => this.client.listResources(page), "resources");
    const text = await this.#read("note://today");
    const picture = await this.#read("note://picture");
    return { uris: listed.map(({ uri }) => uri).sort(), text: text.text, blob: picture.blob.slice(0, 6) };
  }

  async templates() {
    const listed = await everything((page) => this.client.listResourceTemplates(page), "resourceTemplates");
    const { text } = await this.#read("note://by-day/Monday");
    return { templates: listed.map(({ uriTemplate }) => uriTemplate), text };
  }

  async #read(uri) {
    return (await this.client.readResource({ uri })).contents[0];
  }

  async subscriptions() {
    await this.subscribe();
    await this.callTool("change_note", {});
    await this.waitFor("notifications/resources/updated");
    return "notified";
  }

  subscribe() {
    return this.client.subscribeResource({ uri: "note://today" });
  }

  async prompts() {
    const listed = await everything((page) => this.client.listPrompts(page), "prompts");
    const { messages } = await this.client.getPrompt({ name: "recommend", arguments: { city: "Rome" } });
    return { names: listed.map(({ name }) => name), text: messages[0].content.text };
  }

  async completion() {
    const ref = { type: "ref/prompt", name: "recommend" };
    return (await this.client.complete({ ref, argument: { name: "city", value: "O" } })).completion.values;
  }

  async list_changes() {
    await this.listenForTools();
    await this.callTool("add_tool", {});
    await this.waitFor("notifications/tools/list_changed");
    return (await this.listTools()).includes("added");
  }

  async listenForTools() {}
}

// The items of all pages.
async function everything(listPage, field) {
  const items = [];
  let cursor;
  do {
    const page = await listPage(cursor === undefined ? undefined : { cursor });
    items.push(...page[field]);
    cursor = page.nextCursor;
  } while (cursor !== undefined);
  return items;
}
