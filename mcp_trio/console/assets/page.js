// The console's page: the features of the server, forms to use them, results, and all messages.
// It only talks to its own backend: it reads one endless response, with a JSON object per line, and sends POSTs.

import { Fault, complaint, field, group, make, raw, wholeForm } from "./forms.js";
import { asWire, content, json, plain, result, value } from "./results.js";
import { TaskList } from "./tasks.js";

// The token is in the URL that was printed. It must not stay in the address bar or in the history. The tab stores it, so
// that the page can be reloaded.
const given = new URLSearchParams(location.search).get("token");
if (given !== null) {
  sessionStorage.setItem("token", given);
  history.replaceState(null, "", location.pathname);
}
const token = sessionStorage.getItem("token") ?? "";
const MOST_ROWS = 2000;
const $ = (id) => document.getElementById(id);
const headers = { Authorization: `Bearer ${token}` };

// The state of this page's client

let page = null; // its id, while it is open
let own = 0; // the number of its conversation
let server = {};
let connection = null; // the AbortController of the current connection
const calls = new Map(); // the calls in progress: key -> {done, progress}
let numbers = 0;

function say(text) {
  $("status").textContent = text;
}

function connected(state, text) {
  $("connection").className = state;
  $("connection").textContent = text;
}

// The connection

async function connect(revision) {
  connection?.abort();
  const mine = (connection = new AbortController());
  connected("", "connecting");
  let why = "the server closed the connection";
  try {
    const response = await fetch(`events?revision=${encodeURIComponent(revision ?? "")}`, { headers, signal: mine.signal });
    if (!response.ok) {
      why = (await response.text()).trim();
      return;
    }
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let incomplete = "";
    for (let { value: chunk, done } = await reader.read(); !done; { value: chunk, done } = await reader.read()) {
      const lines = (incomplete + chunk).split("\n");
      incomplete = lines.pop();
      for (const line of lines) if (line) receive(JSON.parse(line));
    }
  } catch (problem) {
    if (mine.signal.aborted) return;
  } finally {
    if (connection === mine) disconnected(why);
  }
}

function disconnected(why) {
  page = null;
  connected("lost", `not connected: ${why}`);
  say(`Not connected: ${why}. Reload the page to try again.`);
  for (const call of [...calls.values()]) call.done({ error: { message: `not connected: ${why}` } });
  ask();
}

function receive(event) {
  if (event.row) receiveMessage(event.row);
  else if (event.done) calls.get(event.done)?.done(event);
  else if (event.asked) ask(event);
  else if (event.settled) settle(event.settled);
  else if (event.missed) gap(event.missed);
  else if (event.revisions) revisions(event.revisions);
  else if (event.opened) opened(event);
  else if (event.refused) refused(event.refused);
}

// The reason may be the revision that the tab has stored.
function refused(why) {
  sessionStorage.removeItem("revision");
  disconnected(why);
}

async function post(command, fields) {
  const body = JSON.stringify({ page, ...fields });
  const response = await fetch(command, { method: "POST", headers: { ...headers, "Content-Type": "application/json" }, body });
  if (!response.ok) throw new Error((await response.text()).trim());
}

// Post a command without waiting for it
const postSoon = (command, fields) => post(command, fields).catch((problem) => say(problem.message));

// One request: a promise of {result}, {error} or {cancelled}. `progress` is called with its progress.
function request(method, params = {}, { key = `call-${++numbers}`, progress } = {}) {
  return new Promise((resolve) => {
    const done = (outcome) => {
      calls.delete(key);
      resolve(outcome);
    };
    calls.set(key, { done, progress });
    if (page === null) done({ error: { message: "not connected" } });
    else post("request", { key, method, params }).catch((problem) => done({ error: { message: problem.message } }));
  });
}

async function listAll(method, name) {
  const items = [];
  const params = {};
  do {
    const { result: given } = await request(method, params);
    if (!given) return items;
    items.push(...(given[name] ?? []));
    params.cursor = given.nextCursor;
  } while (params.cursor);
  return items;
}

function revisions(names) {
  if ($("revision").options.length !== names.length) $("revision").replaceChildren(...[...names].sort().reverse().map((name) => make("option", {}, name)));
}

function opened(event) {
  page = event.opened.page;
  own = event.opened.talk;
  server = event.server ?? {};
  $("revision").value = event.opened.revision;
  connected("open", "connected");
  showServer().then(() => {
    tasks.connected();
    return loadFeatures();
  });
}

async function showServer() {
  let info = server.serverInfo;
  if (!info) {
    const { result: found } = await request("server/discover");
    server = found ?? {};
    info = server._meta?.["io.modelcontextprotocol/serverInfo"] ?? {};
  }
  $("server").textContent = info.title ?? info.name ?? "A server";
  document.title = `${$("server").textContent}: console`;
  $("about").textContent = [`${info.name} ${info.version ?? ""}`.trim(), server.instructions].filter(Boolean).join(". ");
}

// Features

const KINDS = [
  { kind: "tool", title: "Tools", feature: "tools", method: "tools/list", list: "tools", key: "name" },
  { kind: "resource", title: "Resources", feature: "resources", method: "resources/list", list: "resources", key: "uri" },
  { kind: "template", title: "Resource templates", feature: "resources", method: "resources/templates/list", list: "resourceTemplates", key: "uriTemplate" },
  { kind: "prompt", title: "Prompts", feature: "prompts", method: "prompts/list", list: "prompts", key: "name" },
];
let offered = [];
let chosen = null;

async function loadFeatures() {
  const features = server.capabilities ?? {};
  // In the first revision, templates are listed with the resources.
  const isFirst = $("revision").selectedIndex === $("revision").options.length - 1;
  const methodOf = ({ kind, method }) => (kind === "template" && isFirst ? "resources/list" : method);
  const found = await Promise.all(KINDS.map((kind) => (features[kind.feature] ? listAll(methodOf(kind), kind.list) : [])));
  offered = KINDS.map((kind, at) => ({ ...kind, items: found[at] }));
  show();
  if (!chosen && offered[0].items.length) choose(offered[0], offered[0].items[0]);
  say(`Connected. ${offered.map(({ title, items }) => `${title}: ${items.length}`).join(", ")}.`);
}

function show() {
  const wanted = $("find").value.toLowerCase();
  const fits = (item) => JSON.stringify([item.name, item.title, item.uri, item.uriTemplate, item.description]).toLowerCase().includes(wanted);
  const groups = offered
    .map((kind) => [kind, kind.items.filter(fits)])
    .filter(([, items]) => items.length)
    .flatMap(([kind, items]) => [make("h2", {}, `${kind.title} (${items.length})`), make("ul", {}, ...items.map((item) => offer(kind, item)))]);
  const focused = $("offers").contains(document.activeElement) && document.activeElement.dataset.name;
  $("offers").replaceChildren(...(groups.length ? groups : [make("p", { class: "hint" }, "Nothing found")]));
  if (focused) [...$("offers").querySelectorAll("button")].find((button) => button.dataset.name === focused)?.focus();
}

function offer(kind, item) {
  const name = item[kind.key];
  const title = item.title ?? item.annotations?.title ?? (kind.kind === "tool" || kind.kind === "prompt" ? null : item.name);
  const label = title && title !== name ? [make("span", {}, title), make("span", { class: "name" }, name)] : [name];
  const isChosen = chosen === `${kind.kind} ${name}`;
  return make("li", {}, make("button", { type: "button", "aria-current": isChosen ? "true" : undefined, "data-name": name, onclick: () => choose(kind, item, true) }, ...label));
}

$("find").addEventListener("input", show);

// The selected feature, and its form

function choose(kind, item, moves = false) {
  chosen = `${kind.kind} ${item[kind.key]}`;
  show();
  const shows = { tool: toolForm, resource: resourceForm, template: templateForm, prompt: promptForm };
  $("chosen").replaceChildren(...heading(kind, item), shows[kind.kind](item));
  if (!moves) return;
  $("chosen-title").focus();
  if (matchMedia("(max-width: 759px)").matches) $("chosen").scrollIntoView();
}

function heading(kind, item) {
  const notes = item.annotations ?? {};
  const badges = [
    notes.readOnlyHint === true && "read-only",
    notes.readOnlyHint === false && "makes changes",
    notes.destructiveHint === true && "destructive",
    notes.idempotentHint === true && "idempotent",
    notes.openWorldHint === true && "open world",
    item.mimeType,
  ].filter(Boolean);
  const name = item[kind.key];
  const title = item.title ?? notes.title ?? item.name ?? name;
  return [
    make("h2", { id: "chosen-title", tabindex: -1 }, title),
    title !== name ? make("code", { class: "dim" }, name) : "",
    badges.length ? make("ul", { class: "badges", "aria-label": "Notes" }, ...badges.map((badge) => make("li", {}, badge))) : "",
    item.description ? make("p", { class: "description text" }, item.description) : "",
  ];
}

// A form that sends its value. `send` returns a promise: the text of an error that belongs to a field, or nothing.
function formOf(schema, label, send, about) {
  const fields = wholeForm(schema, about);
  const { element: problem, complain } = complaint("p", { class: "problem", role: "alert" });
  const turn = make("button", { type: "button", "aria-pressed": String(fields.asJson) }, "As JSON");
  turn.addEventListener("click", () => {
    try {
      fields.switchTo(!fields.asJson);
      turn.setAttribute("aria-pressed", String(fields.asJson));
      complain();
    } catch (fault) {
      complain(fault.message);
    }
  });
  const buttons = make("div", { class: "buttons" }, make("button", { type: "submit", class: "primary" }, label), fields.canSwitch && !fields.isEmpty ? turn : "");
  const form = make("form", {}, fields.isEmpty ? make("p", { class: "hint" }, "It takes no arguments.") : fields.element, problem, buttons);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    fields.forget();
    complain();
    try {
      const given = fields.read();
      const fault = await send(given);
      if (fault && form.isConnected && !fields.blame(fault)) complain(fault);
    } catch (fault) {
      if (!(fault instanceof Fault)) throw fault;
      fault.show();
    }
  });
  return form;
}

// Return an error text if it names the path of a wrong argument
const blames = (text) => (/\$[.[]/.test(text ?? "") ? text : null);

function toolForm(tool) {
  const send = async (given) => {
    const outcome = await run(tool.title ?? tool.name, "tools/call", { name: tool.name, arguments: given }, given);
    const text = outcome.error?.message ?? (outcome.result?.isError && outcome.result.content?.map((item) => item.text ?? "").join("\n"));
    return blames(text) ?? blames(outcome.error?.data?.reason);
  };
  return formOf(tool.inputSchema, "Call", send);
}

function read(uri) {
  return run(uri, "resources/read", { uri });
}

function resourceForm(item) {
  return formOf({ type: "object", properties: {}, additionalProperties: false }, "Read", () => read(item.uri).then(() => null));
}

// The variables of a URI template, in its simple forms (RFC 6570)
const VARIABLE = /\{([+#./;?&]?)([^}]+)\}/g;

const variables = (names) => names.split(",").map((name) => name.replace(/[*]$|:\d+$/, ""));

function expand(template, given) {
  return template.replace(VARIABLE, (_, operator, names) => {
    const pairs = variables(names).filter((name) => given[name] !== undefined);
    const encode = (text) => (operator === "+" || operator === "#" ? encodeURI(text) : encodeURIComponent(text));
    if (operator === "?" || operator === "&" || operator === ";") return pairs.map((name, at) => `${at === 0 ? operator : operator === "?" ? "&" : operator}${name}=${encodeURIComponent(given[name])}`).join("");
    const first = operator === "+" ? "" : operator;
    return pairs.length ? first + pairs.map((name) => encode(given[name])).join(operator === "/" || operator === "." ? operator : ",") : "";
  });
}

function completesOf(ref, others) {
  if (!server.capabilities?.completions) return undefined;
  return async (name, typed) => {
    const params = { ref, argument: { name, value: typed } };
    const { result: given } = await request("completion/complete", { ...params, ...(Object.keys(others()).length ? { context: { arguments: others() } } : {}) });
    return given?.completion?.values ?? [];
  };
}

function textsForm(label, names, ref, send) {
  let form = null;
  const others = () => {
    const inputs = [...form.querySelectorAll("input, textarea")].filter((input) => input.value !== "");
    return Object.fromEntries(inputs.map((input) => [input.closest(".field")?.dataset.name, input.value]).filter(([name]) => name));
  };
  const schema = {
    type: "object", additionalProperties: false, required: names.filter(({ required }) => required).map(({ name }) => name),
    properties: Object.fromEntries(names.map(({ name, title, description }) => [name, { type: "string", title, description }])),
  };
  form = formOf(schema, label, send, { completes: completesOf(ref, others) });
  form.querySelectorAll(".field").forEach((one, at) => (one.dataset.name = names[at].name));
  return form;
}

function templateForm(item) {
  const found = [...item.uriTemplate.matchAll(VARIABLE)].flatMap(([, operator, names]) => variables(names).map((name) => ({ name, required: !"?&;".includes(operator || " ") })));
  const names = [...new Map(found.map((one) => [one.name, one])).values()];
  return textsForm("Read", names, { type: "ref/resource", uri: item.uriTemplate }, (given) => read(expand(item.uriTemplate, given)).then(() => null));
}

function promptForm(item) {
  const send = async (given) => {
    const outcome = await run(item.title ?? item.name, "prompts/get", { name: item.name, arguments: given }, given);
    return blames(outcome.error?.message);
  };
  return textsForm("Get", item.arguments ?? [], { type: "ref/prompt", name: item.name }, send);
}

// A call, from its start to its result

async function run(title, method, params, given) {
  const key = `call-${++numbers}`;
  const state = make("span", { class: "state" }, "running");
  const bar = make("progress", { "aria-label": `Progress of ${title}` });
  const step = make("span", { class: "note" });
  const cancel = make("button", { type: "button", class: "small", "aria-label": `Cancel ${title}` }, "Cancel");
  const running = make("div", { class: "running" }, bar, step, cancel);
  const asked = given && Object.keys(given).length ? make("code", { class: "dim" }, JSON.stringify(given).slice(0, 300)) : "";
  const article = make("article", { "aria-busy": "true", "data-key": key }, make("h3", { tabindex: -1 }, title, state), asked, running);
  $("results").querySelector(":scope > .hint")?.remove();
  $("results").prepend(article);
  let task = null; // its id, once the call has become a task
  cancel.addEventListener("click", () => {
    cancel.disabled = true;
    if (task === null) postSoon("cancel", { key });
    else tasks.cancel(task);
  });
  const progress = ({ progress: far, total, message }) => {
    if (total > 0) bar.max = total;
    if (total > 0) bar.value = far;
    step.textContent = [total > 0 ? `${far} of ${total}` : far, message].filter((one) => one !== undefined).join(": ");
  };
  say(`${title}: running`);
  const began = performance.now();
  let outcome = await request(method, params, { key, progress });
  if (outcome.result?.resultType === "task") {
    task = outcome.result.taskId;
    if (cancel.disabled) tasks.cancel(task); // the cancellation came too late for the request
    outcome = await tasks.follow(outcome.result, title, ({ status, statusMessage }) => {
      state.textContent = `task: ${status.replace("_", " ")}`;
      step.textContent = statusMessage ?? "";
    });
  }
  const took = performance.now() - began;
  const hadFocus = running.contains(document.activeElement);
  running.remove();
  article.setAttribute("aria-busy", "false");
  finish(article, state, outcome, method, took < 1000 ? `${Math.round(took)} ms` : `${(took / 1000).toFixed(1)} s`);
  say(`${title}: ${state.textContent}`);
  if (hadFocus) article.querySelector("h3").focus();
  while ($("results").childElementCount > 100) $("results").lastElementChild.remove();
  return outcome;
}

function finish(article, state, outcome, method, took) {
  const failed = outcome.error || outcome.result?.isError;
  article.classList.toggle("failed", Boolean(failed));
  if (outcome.cancelled) {
    state.textContent = `cancelled after ${took}`;
  } else if (outcome.error) {
    const { code, message, data } = outcome.error;
    state.textContent = `✖ error after ${took}`;
    article.append(make("p", { class: "problem text" }, code === undefined || code === null ? message : `${message} (${code})`));
    if (data !== undefined && data !== null) article.append(value(data, "Data"));
  } else {
    state.textContent = outcome.result.isError ? `⚠ tool error after ${took}` : `✔ done in ${took}`;
    article.append(...result(method, outcome.result, read).filter(Boolean), asWire(outcome.result));
  }
}

// Questions, one at a time

const questions = [];
const asked = new Map(); // the questions in messages: request id -> params, as text
let current = null;

// `added` may have a function `respond`, which is called with the answer instead of posting it.
function ask(added) {
  const isKnown = added && [current, ...questions].some((question) => question?.asked === added.asked);
  if (added && !isKnown) questions.push(added);
  if (page === null) questions.length = 0;
  if (current && page === null) close();
  if (current || !questions.length) return;
  current = questions.shift();
  const { method, params } = current;
  const shows = { "elicitation/create": params.mode === "url" ? visit : elicit, "sampling/createMessage": sample, "roots/list": roots };
  $("question-fields").replaceChildren();
  $("question-text").textContent = params.message ?? "";
  $("question-decline").hidden = method !== "elicitation/create";
  $("question-cancel").textContent = method === "elicitation/create" ? "Cancel" : "Refuse";
  (shows[method] ?? other)(params);
  $("question").showModal();
  say(`The server asks: ${$("question-text").textContent || $("question-title").textContent}`);
  ($("question-fields").querySelector("input, select, textarea, a, button") ?? $("question-send")).focus();
}

function settle(key) {
  const at = questions.findIndex(({ asked }) => asked === key);
  if (at >= 0) questions.splice(at, 1);
  if (current?.asked === key) close();
}

// The server has cancelled its question.
function withdraw(id) {
  const params = asked.get(id);
  const one = [current, ...questions].find((question) => question && JSON.stringify(question.params) === params);
  if (one) postSoon("answer", { key: one.asked, result: null });
}

function close() {
  current = null;
  $("question").close();
  ask();
}

function answer(given) {
  if (current.respond) current.respond(given);
  else postSoon("answer", { key: current.asked, result: given });
  close();
}

const refuse = () => answer(current.method === "elicitation/create" ? { action: "cancel" } : null);
$("question-decline").addEventListener("click", () => answer({ action: "decline" }));
$("question-cancel").addEventListener("click", refuse);
$("question").addEventListener("cancel", (event) => {
  event.preventDefault();
  if (current) refuse();
});
$("question-form").addEventListener("submit", (event) => {
  event.preventDefault();
  const { fields, result: made } = current;
  try {
    fields?.forget?.();
    answer(made(fields?.read()));
  } catch (fault) {
    if (!(fault instanceof Fault)) throw fault;
    fault.show();
  }
});

function put(title, fields, made) {
  $("question-title").textContent = title;
  $("question-fields").append(...fields);
  current.result = made;
}

function elicit({ requestedSchema }) {
  current.fields = wholeForm({ additionalProperties: false, ...requestedSchema });
  put("The server asks for your input", [current.fields.element], (given) => ({ action: "accept", content: given }));
}

function visit({ url }) {
  const safe = /^https?:\/\//i.test(url ?? "");
  const place = safe ? make("a", { href: url, target: "_blank", rel: "noopener noreferrer" }, url) : make("code", {}, url);
  put("The server asks you to visit a page", [make("p", {}, place)], () => ({ action: "accept" }));
}

function sample(params) {
  const messages = (params.messages ?? []).flatMap((message) => {
    const pieces = Array.isArray(message.content) ? message.content : [message.content ?? {}];
    return make("div", { class: "box" }, make("strong", {}, message.role), ...pieces.map((piece) => content(piece, () => {})));
  });
  const { messages: _, ...rest } = params;
  current.fields = group({ properties: { text: { type: "string", title: "The model's reply" }, model: { type: "string", title: "Name of the model", default: "a person" } }, required: ["text", "model"] }, { isTop: true });
  const made = ({ text, model }) => ({ role: "assistant", content: { type: "text", text }, model, stopReason: "endTurn" });
  put("The server asks for a model's reply", [...messages, value(rest, "Request"), current.fields.element], made);
}

function roots() {
  current.fields = field({ type: "string", title: "Folders, as file:// URIs, one per line", maxLength: 100000 }, { name: "roots" });
  const made = (text) => ({ roots: (text ?? "").split("\n").map((uri) => uri.trim()).filter(Boolean).map((uri) => ({ uri })) });
  put("The server asks for the folders that it may work in", [current.fields.element], made);
}

function other(params) {
  current.fields = raw({}, { label: "The result", rows: 6, required: true });
  put(`The server asks: ${current.method}`, [value(params, "Request"), current.fields.element], (given) => given);
}

// Tasks

const TASKS = "io.modelcontextprotocol/tasks";
const tasks = new TaskList(
  {
    request,
    ask,
    settle,
    hasTasks: () => page !== null && Boolean(server.capabilities?.extensions?.[TASKS]),
    name: (row) => name(row),
    show: (title, id) => run(title, "tasks/get", { taskId: id }),
  },
  $("tasks"),
);

// Messages

let paused = null; // the messages since then
let isFiltering = 0;
let latest = 0; // the number of the last message; a new connection repeats the ones before it

const waiting = new Map(); // the titles of requests without a reply

// The title of a message: its method and its subject, or the title of the request that it replies to.
function titleOf(row, message) {
  if (Array.isArray(message)) return `batch of ${message.length}`;
  if (typeof message !== "object" || message === null) return "not a message";
  const { id, method, params, error, result: given } = message;
  const number = id === undefined || id === null ? "" : ` #${id}`;
  if (method) {
    const { name: subject, uri, requestId, progressToken, level, ref, progress, total } = params ?? {};
    const far = progress === undefined ? undefined : `${progress}${total === undefined ? "" : ` of ${total}`}`;
    const about = subject ?? uri ?? requestId ?? far ?? progressToken ?? level ?? ref?.name ?? ref?.uri ?? "";
    const title = `${method} ${about}`.trim();
    if (number) waiting.set(`${row.talk} ${row.from} ${id}`, title);
    if (waiting.size > MOST_ROWS) waiting.delete(waiting.keys().next().value);
    return title + number;
  }
  const asked = `${row.talk} ${row.from === "client" ? "server" : "client"} ${id}`;
  const of = waiting.has(asked) ? ` of ${waiting.get(asked)}` : "";
  waiting.delete(asked);
  if (error) return `error ${error.code}${of}${number}: ${error.message}`;
  if (given?.isError) return `tool error${of}${number}`;
  const kinds = { input_required: "question", task: "task" };
  return `${kinds[given?.resultType] ?? "result"}${of}${number}`;
}

function receiveMessage(row) {
  if (row.number <= latest) return;
  latest = row.number;
  const message = row.head ?? json(row.text); // the text of a long message is truncated
  if (row.talk === own && row.from === "server") handleMessage(message);
  tasks.receive(row, message);
  if (paused) paused.push([row, message]);
  else add(row, message);
  if (paused?.length > MOST_ROWS) paused.shift();
  count();
}

// Act on a message from the server to this page's own client
function handleMessage(message) {
  const { progressToken, ...far } = message?.params ?? {};
  if (message?.method && message.id !== undefined) asked.set(message.id, JSON.stringify(message.params ?? {}));
  if (message?.method === "notifications/cancelled") withdraw(message.params?.requestId);
  if (message?.method === "notifications/progress") calls.get(progressToken)?.progress?.(far);
  if (/^notifications\/(tools|resources|prompts)\/list_changed$/.test(message?.method)) loadFeatures();
}

function add(row, message) {
  const isAtEnd = $("rows").scrollTop + $("rows").clientHeight > $("rows").scrollHeight - 40;
  addConversation(row);
  const what = titleOf(row, message);
  const time = new Date(row.at * 1000);
  const stamp = `${time.toLocaleTimeString([], { hour12: false })}.${String(time.getMilliseconds()).padStart(3, "0")}`;
  const way = row.from === "client" ? "→ to the server" : "← from the server";
  const about = make("span", { class: "head" }, make("time", {}, stamp), make("span", { class: "way" }, way), make("span", {}, row.transport), make("span", {}, name(row)));
  const details = make("details", {}, make("summary", {}, about, make("span", { class: "what" }, what)));
  const isWrong = message?.error || message?.result?.isError;
  const item = make("li", { class: `${row.from}${isWrong ? " wrong" : ""}` }, details);
  item.row = row;
  details.addEventListener("toggle", () => {
    if (!details.open || details.childElementCount > 1) return;
    const shown = row.head || message === undefined ? row.text : JSON.stringify(message, null, 2);
    details.append(plain(shown), row.head ? make("p", { class: "hint" }, `Only the beginning of ${row.size} bytes is shown; a saved trace contains all of them.`) : "");
  });
  item.hidden = !fits(item);
  $("rows").append(item);
  while ($("rows").childElementCount > MOST_ROWS) $("rows").firstElementChild.remove();
  if (isAtEnd) $("rows").scrollTop = $("rows").scrollHeight;
}

function gap(missed) {
  $("rows").append(make("li", { class: "gap" }, `${missed} messages are missing: they are too old, or arrived too fast to be shown`));
}

const name = (row) => (row.talk === own ? "this page" : row.client || `client ${row.talk}`);

function addConversation(row) {
  const known = [...$("talks").options].find((option) => option.value === String(row.talk));
  const label = `${row.talk}: ${name(row)}, ${row.transport}`;
  if (!known) $("talks").append(make("option", { value: row.talk }, label));
  else if (known.textContent !== label) known.textContent = label;
}

function fits(item) {
  if (!item.row) return true;
  const talk = $("talks").value;
  const { text, client, transport } = item.row;
  return (!talk || talk === String(item.row.talk)) && `${transport} ${client} ${text}`.toLowerCase().includes($("filter").value.toLowerCase());
}

function filter() {
  cancelAnimationFrame(isFiltering);
  isFiltering = requestAnimationFrame(() => {
    for (const item of $("rows").children) item.hidden = !fits(item);
    $("rows").scrollTop = $("rows").scrollHeight;
    count();
  });
}

let isCounting = false;
function count() {
  if (isCounting) return;
  isCounting = true;
  requestAnimationFrame(() => {
    isCounting = false;
    const items = [...$("rows").children];
    const visible = items.filter((item) => !item.hidden).length;
    $("shown").textContent = `${visible === items.length ? visible : `${visible} of ${items.length}`}${paused ? `, ${paused.length} waiting` : ""}`;
  });
}

$("filter").addEventListener("input", filter);
$("talks").addEventListener("change", filter);
$("pause").addEventListener("click", () => {
  const held = paused;
  paused = held ? null : [];
  for (const [row, message] of held ?? []) add(row, message);
  $("pause").setAttribute("aria-pressed", String(Boolean(paused)));
  count();
});
$("clear").addEventListener("click", () => {
  $("rows").replaceChildren();
  count();
});
$("save").addEventListener("click", async () => {
  const talk = $("talks").value || own;
  const response = await fetch(`trace?talk=${talk}`, { headers });
  if (!response.ok) return say((await response.text()).trim());
  const address = URL.createObjectURL(await response.blob());
  const file = `conversation-${talk}.jsonl`;
  make("a", { href: address, download: file }).click();
  setTimeout(() => URL.revokeObjectURL(address), 10000);
  return say(`Saved as ${file}. To replay it: python -m mcp_trio replay ${file} SPEC`);
});

// The theme, and starting the page

function theme(name) {
  document.documentElement.dataset.theme = name;
  $("theme").value = name;
}

$("theme").addEventListener("change", () => {
  theme($("theme").value);
  localStorage.setItem("theme", $("theme").value);
});
$("revision").addEventListener("change", () => {
  for (const call of [...calls.values()]) call.done({ cancelled: true });
  chosen = null;
  $("chosen").replaceChildren(); // the form belongs to the previous conversation
  sessionStorage.setItem("revision", $("revision").value);
  connect($("revision").value);
});
// A browser opens at most six connections to one host, and each page keeps one, so requests of a sixth page would wait.
async function isRoom() {
  for (let number = 0; navigator.locks && number < 5; number += 1) {
    const isMine = await new Promise((resolve) => {
      navigator.locks.request(`page ${number}`, { ifAvailable: true }, (lock) => (resolve(Boolean(lock)), lock && new Promise(() => {})));
    });
    if (isMine) return true;
  }
  return !navigator.locks;
}

theme(localStorage.getItem("theme") ?? "");
if (await isRoom()) connect(sessionStorage.getItem("revision"));
else disconnected("this browser already has five pages of this console open; close one");
