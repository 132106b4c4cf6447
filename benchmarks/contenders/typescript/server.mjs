// The official TypeScript SDK: `server.mjs stdio` or `server.mjs http|stateless|stream PORT`.
import { randomUUID } from "node:crypto";
import { createServer } from "node:http";
import { setImmediate } from "node:timers/promises";
import {
  localhostHostValidation,
  localhostOriginValidation,
  NodeStreamableHTTPServerTransport,
  toNodeHandler,
} from "@modelcontextprotocol/node";
import { createMcpHandler, fromJsonSchema, McpServer } from "@modelcontextprotocol/server";
import { serveStdio } from "@modelcontextprotocol/server/stdio";
import { z } from "zod";

const [mode, port] = process.argv.slice(2);
const NEWEST = "2026-07-28";

const numbers = z.object({ a: z.int(), b: z.int() });
const words = z.object({ text: z.string() });
const steps = z.object({ n: z.int() });
const nothing = z.object({});
const total = z.object({ result: z.int() });
const user = z.object({
  id: z.int(),
  name: z.string(),
  email: z.string(),
  active: z.boolean(),
  tags: z.array(z.string()),
});
const users = z.object({ result: z.array(user) });
const order = z.object({
  customer: z.object({
    name: z.string().min(1).max(100),
    address: z.object({ street: z.string().min(1).max(100), postcode: z.string().regex(/^[0-9]{5}$/) }),
  }),
  items: z
    .array(
      z.object({
        sku: z.string().regex(/^[A-Z]{2}[0-9]{4}$/),
        quantity: z.int().min(1).max(100),
        price: z.number().min(0),
      }),
    )
    .min(1)
    .max(20),
  shipping: z.enum(["normal", "express"]),
});
const route = fromJsonSchema({
  type: "object",
  properties: {
    from: { type: "string", minLength: 1, maxLength: 100 },
    to: { type: "string", minLength: 1, maxLength: 100 },
    mode: { enum: ["walk", "ride"] },
    stops: { type: "array", items: { type: "string" }, maxItems: 10 },
  },
  required: ["from", "to", "mode"],
  additionalProperties: false,
});
const makeUser = id => ({ id, name: `user ${id}`, email: "user@example.com", active: true, tags: ["a"] });
const structured = value => ({ content: [{ type: "text", text: JSON.stringify(value) }], structuredContent: value });
const text = value => ({ content: [{ type: "text", text: String(value) }] });
const sum = ({ a, b }) => text(a + b);
const oneMore = { description: "Add two numbers.", inputSchema: numbers };

// Shared by all servers, of which there is one a session and, without sessions, one a request.
const more = Array.from({ length: Number(process.env.BENCH_TOOLS ?? 0) }, (_, number) => `tool_${number}`);
const open = new Map(); // session -> its server and transport
let changed; // has a server offer one more tool, and the clients told

function makeServer() {
  const server = new McpServer(
    { name: "typescript", version: "1" },
    { capabilities: { tools: { listChanged: true } } },
  );
  server.registerTool("add", oneMore, async numbers => sum(numbers));
  server.registerTool(
    "wait",
    { description: "Add two numbers after a turn of the loop.", inputSchema: numbers },
    async numbers => {
      await setImmediate();
      return sum(numbers);
    },
  );
  // Node has no thread for it: it blocks the loop.
  server.registerTool("block", { description: "Add two numbers in a thread.", inputSchema: numbers }, sum);
  server.registerTool("echo", { description: "Give the text back.", inputSchema: words }, async given =>
    text(given.text),
  );
  server.registerTool(
    "progress",
    { description: "Tell of n steps, then answer.", inputSchema: steps },
    async ({ n }, { mcpReq }) => {
      const progressToken = mcpReq._meta?.progressToken;
      for (let progress = 1; progressToken !== undefined && progress <= n; progress++) {
        await mcpReq.notify({ method: "notifications/progress", params: { progressToken, progress, total: n } });
      }
      return text(n);
    },
  );
  server.registerTool(
    "total",
    { description: "Add two numbers, as a structured result.", inputSchema: numbers, outputSchema: total },
    async ({ a, b }) => structured({ result: a + b }),
  );
  server.registerTool(
    "user",
    { description: "Return an object.", inputSchema: numbers, outputSchema: user },
    async ({ a }) => structured(makeUser(a)),
  );
  server.registerTool(
    "users",
    { description: "Return a list of objects.", inputSchema: numbers, outputSchema: users },
    async ({ a }) => structured({ result: Array.from({ length: 100 }, (_, number) => makeUser(a + number)) }),
  );
  server.registerTool(
    "order",
    { description: "Count what is ordered.", inputSchema: order },
    async ({ items }) => text(items.reduce((sum, item) => sum + item.quantity, 0)),
  );
  server.registerTool(
    "route",
    { description: "Describe a route.", inputSchema: route },
    async ({ from, to, mode }) => text(`${mode} from ${from} to ${to}`),
  );
  server.registerTool(
    "grow",
    { description: "Add a tool, so that those who listen hear that the list has changed.", inputSchema: nothing },
    async () => {
      const name = `grown_${more.length}`;
      more.push(name);
      changed(server, name);
      return text(name);
    },
  );
  for (const name of more) server.registerTool(name, oneMore, sum);
  return server;
}

// The SDK's own handler of the newest revision. In JSON, or in a stream where a tool tells of its progress.
function newestHandler() {
  const handler = createMcpHandler(makeServer, { responseMode: mode === "stream" ? "sse" : "auto" });
  changed = (_, name) => {
    handler.notify.toolsChanged();
    for (const { server } of open.values()) server.registerTool(name, oneMore, sum);
  };
  return toNodeHandler(handler);
}

// Older revisions without a session, as the SDK's documentation wires it: a server and a transport for each request.
async function handleOnce(request, response) {
  const server = makeServer();
  const transport = new NodeStreamableHTTPServerTransport({ sessionIdGenerator: undefined, enableJsonResponse: true });
  response.on("close", () => server.close());
  await server.connect(transport);
  return transport.handleRequest(request, response);
}

// Older revisions with a session: a server and a transport for each.
async function handleSession(request, response) {
  const session = open.get(request.headers["mcp-session-id"]);
  if (session) return session.transport.handleRequest(request, response);
  const server = makeServer();
  const transport = new NodeStreamableHTTPServerTransport({
    sessionIdGenerator: randomUUID,
    enableJsonResponse: mode !== "stream",
    onsessioninitialized: id => void open.set(id, { server, transport }),
    onsessionclosed: id => void open.delete(id),
  });
  await server.connect(transport);
  return transport.handleRequest(request, response);
}

function serveHttp() {
  const handleNewest = newestHandler();
  const handleOlder = mode === "stateless" ? handleOnce : handleSession;
  const [validHost, validOrigin] = [localhostHostValidation(), localhostOriginValidation()];
  createServer((request, response) => {
    if (!validHost(request, response) || !validOrigin(request, response)) return;
    const handle = request.headers["mcp-protocol-version"] === NEWEST ? handleNewest : handleOlder;
    handle(request, response);
  }).listen(Number(port), "127.0.0.1");
}

if (mode === "stdio") {
  changed = (server, name) => server.registerTool(name, oneMore, sum);
  serveStdio(makeServer);
} else {
  serveHttp();
}
