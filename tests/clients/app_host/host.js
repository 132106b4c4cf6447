// A host of apps: it calls a tool, and shows the tool's page. The address has the server's
// URL, the sandbox's URL, and the call: ?server=...&sandbox=...&tool=...&arguments=...

import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import {
  AppBridge,
  PostMessageTransport,
  RESOURCE_MIME_TYPE,
  getToolUiResourceUri,
} from "@modelcontextprotocol/ext-apps/app-bridge";

const HOST = { name: "test-host", version: "1.0.0" };
const asked = new URLSearchParams(location.search);
// What the tests look at.
globalThis.seen = { calls: [], initialized: false };

const client = new Client(HOST, {
  capabilities: {
    extensions: { "io.modelcontextprotocol/ui": { mimeTypes: [RESOURCE_MIME_TYPE] } },
  },
});
await client.connect(new StreamableHTTPClientTransport(new URL(asked.get("server"))));
const call = {
  name: asked.get("tool"),
  arguments: JSON.parse(asked.get("arguments") ?? "{}"),
};
const { tools } = await client.listTools();
seen.tools = tools.map((tool) => ({ name: tool.name, ...tool._meta?.ui }));
const tool = tools.find((tool) => tool.name === call.name);
const { contents } = await client.readResource({ uri: getToolUiResourceUri(tool) });
seen.page = { mimeType: contents[0].mimeType, ui: contents[0]._meta?.ui };
const result = await client.callTool(call);
document.querySelector("#text").textContent = result.content[0].text;

const frame = document.querySelector("#app");
const bridge = new AppBridge(client, HOST, { serverTools: {}, logging: {} }, {
  hostContext: { theme: "light", displayMode: "inline" },
});
bridge.onsandboxready = () =>
  bridge.sendSandboxResourceReady({ html: contents[0].text, csp: seen.page.ui?.csp });
bridge.oninitialized = async () => {
  seen.initialized = true;
  await bridge.sendToolInput({ arguments: call.arguments });
  await bridge.sendToolResult(result);
};
bridge.onsizechange = ({ height }) => {
  if (height) frame.style.height = `${height}px`;
};
frame.setAttribute("sandbox", "allow-scripts allow-same-origin");
await bridge.connect(new PostMessageTransport(frame.contentWindow, frame.contentWindow));
// Connecting has set a handler that passes calls on to the server.
bridge.oncalltool = async (params) => {
  const answer = await client.callTool(params);
  seen.calls.push({ params, answer });
  return answer;
};
frame.src = asked.get("sandbox");
