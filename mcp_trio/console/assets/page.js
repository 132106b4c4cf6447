// The console's page: what the server offers, forms for it, what came of it, and every message that passes.
// It speaks to its own backend alone: one response that does not end, of JSON by line, and POSTs.

import { Fault, complaint, field, group, make, raw, wholeForm } from "./forms.js";
import { asWire, content, json, plain, result, value } from "./results.js";
import { TaskList } from "./tasks.js";

// The token comes in the address that was printed. It must stay neither in the address bar nor in the history. The tab
// remembers it, so that the page can be loaded again.
const given = new URLSearchParams(location.search).get("token");
if (given !== null) {
  sessionStorage.setItem("token", given);
  history.replaceState(null, "", location.pathname);
}
const token = sessionStorage.getItem("token") ?? "";
const MOST_ROWS = 2000;
const $ = (id) => document.getElementById(id);
const headers = { Authorization: `Bearer ${token}` };

// What is known of this page's client

let page = null; // its name, from when it is open
let own = 0; // the number of its conversation
let server = {};
let life = null; // what ends the connection
const calls = new Map(); // those under way: key -> what hears of them
let numbers = 0;

function say(text) {
  $("status").textContent = text;
}

function connected(state, text) {
  $("connection").className = state;
  $("connection").textContent = text;
}

// The connection

async function live(revision) {
  life?.abort();
  const mine = (life = new AbortController());
  connected("", "connecting");
  let why = "the server has gone";
  try {
    const response = await fetch(`events?revision=${encodeURIComponent(revision ?? "")}`, { headers, signal: mine.signal });
    if (!response.ok) {
      why = (await response.text()).trim();
      return;
    }
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let begun = "";
    for (let { value: chunk, done } = await reader.read(); !done; { value: chunk, done } = await reader.read()) {
      const lines = (begun + chunk).split("\n");
      begun = lines.pop();
      for (const line of lines) if (line) hear(JSON.parse(line));
    }
  } catch (problem) {
    if (mine.signal.aborted) return;
  } finally {
    if (life === mine) lost(why);
  }
}

function lost(why) {
  page = null;
  connected("lost", `not connected: ${why}`);
  say(`Not connected: ${why}. Reload the page to try again.`);
  for (const call of [...calls.values()]) call.done({ error: { message: `not connected: ${why}` } });
  ask();
}

function hear(told) {
  if (told.row) pass(told.row);
  else if (told.done) calls.get(told.done)?.done(told);
  else if (told.asked) ask(told);
  else if (told.settled) settle(told.settled);
  else if (told.missed) gap(told.missed);
  else if (told.revisions) revisions(told.revisions);
  else if (told.opened) opened(told);
  else if (told.refused) refused(told.refused);
}

// The revision that the tab remembers may be the reason.
function refused(why) {
  sessionStorage.removeItem("revision");
  lost(why);
}

async function post(act, wanted) {
  const body = JSON.stringify({ page, ...wanted });
  const response = await fetch(act, { method: "POST", headers: { ...headers, "Content-Type": "application/json" }, body });
  if (!response.ok) throw new Error((await response.text()).trim());
}

// The same, where nothing waits for it
const tell = (act, wanted) => post(act, wanted).catch((problem) => say(problem.message));

// One request: a promise of {result}, {error} or {cancelled}. `progress` hears how far it is.
function request(method, params = {}, { key = `call-${++numbers}`, progress } = {}) {
  return new Promise((resolve) => {
    const done = (told) => {
      calls.delete(key);
      resolve(told);
    };
    calls.set(key, { done, progress });
    if (page === null) done({ error: { message: "not connected" } });
    else post("request", { key, method, params }).catch((problem) => done({ error: { message: problem.message } }));
  });
}

async function listed(method, name) {
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

function opened(told) {
  page = told.opened.page;
  own = told.opened.talk;
  server = told.server ?? {};
  $("revision").value = told.opened.revision;
  connected("open", "connected");
  introduce().then(() => {
    tasks.connected();
    return offers();
  });
}

async function introduce() {
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

// What is offered

const KINDS = [
  { kind: "tool", title: "Tools", feature: "tools", method: "tools/list", list: "tools", key: "name" },
  { kind: "resource", title: "Resources", feature: "resources", method: "resources/list", list: "resources", key: "uri" },
  { kind: "template", title: "Resource templates", feature: "resources", method: "resources/templates/list", list: "resourceTemplates", key: "uriTemplate" },
  { kind: "prompt", title: "Prompts", feature: "prompts", method: "prompts/list", list: "prompts", key: "name" },
];
let offered = [];
let chosen = null;

async function offers() {
  const features = server.capabilities ?? {};
  // In the first revision the templates stand beside the resources.
  const isFirst = $("revision").selectedIndex === $("revision").options.length - 1;
  const methodOf = ({ kind, method }) => (kind === "template" && isFirst ? "resources/list" : method);
  const found = await Promise.all(KINDS.map((kind) => (features[kind.feature] ? listed(methodOf(kind), kind.list) : [])));
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
  $("offers").replaceChildren(...(groups.length ? groups : [make("p", { class: "hint" }, "Nothing")]));
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

// What is chosen: its form

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
    notes.readOnlyHint === true && "only reads",
    notes.readOnlyHint === false && "changes things",
    notes.destructiveHint === true && "may destroy",
    notes.idempotentHint === true && "again is the same",
    notes.openWorldHint === true && "reaches outside",
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

// A form that sends its value; `send` gives a promise of an error's text that belongs to a field, or of nothing.
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

// Whether a text says that arguments are wrong, and where
const blames = (text) => (/\$[.[]/.test(text ?? "") ? text : null);

function toolForm(tool) {
  const send = async (given) => {
    const told = await run(tool.title ?? tool.name, "tools/call", { name: tool.name, arguments: given }, given);
    const text = told.error?.message ?? (told.result?.isError && told.result.content?.map((item) => item.text ?? "").join("\n"));
    return blames(text) ?? blames(told.error?.data?.reason);
  };
  return formOf(tool.inputSchema, "Call", send);
}

function read(uri) {
  return run(uri, "resources/read", { uri });
}

function resourceForm(item) {
  return formOf({ type: "object", properties: {}, additionalProperties: false }, "Read", () => read(item.uri).then(() => null));
}

// The variables of a URI template, of its simple kinds (RFC 6570)
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
    const told = await run(item.title ?? item.name, "prompts/get", { name: item.name, arguments: given }, given);
    return blames(told.error?.message);
  };
  return textsForm("Get", item.arguments ?? [], { type: "ref/prompt", name: item.name }, send);
}

// A call, from its beginning to what came of it

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
    if (task === null) tell("cancel", { key });
    else tasks.cancel(task);
  });
  const progress = ({ progress: far, total, message }) => {
    if (total > 0) bar.max = total;
    if (total > 0) bar.value = far;
    step.textContent = [total > 0 ? `${far} of ${total}` : far, message].filter((one) => one !== undefined).join(": ");
  };
  say(`${title}: running`);
  const began = performance.now();
  let told = await request(method, params, { key, progress });
  if (told.result?.resultType === "task") {
    task = told.result.taskId;
    if (cancel.disabled) tasks.cancel(task); // too late for the request
    told = await tasks.follow(told.result, title, ({ status, statusMessage }) => {
      state.textContent = `task: ${status.replace("_", " ")}`;
      step.textContent = statusMessage ?? "";
    });
  }
  const took = performance.now() - began;
  const hadFocus = running.contains(document.activeElement);
  running.remove();
  article.setAttribute("aria-busy", "false");
  finish(article, state, told, method, took < 1000 ? `${Math.round(took)} ms` : `${(took / 1000).toFixed(1)} s`);
  say(`${title}: ${state.textContent}`);
  if (hadFocus) article.querySelector("h3").focus();
  while ($("results").childElementCount > 100) $("results").lastElementChild.remove();
  return told;
}

function finish(article, state, told, method, took) {
  const failed = told.error || told.result?.isError;
  article.classList.toggle("failed", Boolean(failed));
  if (told.cancelled) {
    state.textContent = `cancelled after ${took}`;
  } else if (told.error) {
    const { code, message, data } = told.error;
    state.textContent = `✖ error after ${took}`;
    article.append(make("p", { class: "problem text" }, code === undefined || code === null ? message : `${message} (${code})`));
    if (data !== undefined && data !== null) article.append(value(data, "Data"));
  } else {
    state.textContent = told.result.isError ? `⚠ the tool reports an error, after ${took}` : `✔ done in ${took}`;
    article.append(...result(method, told.result, read).filter(Boolean), asWire(told.result));
  }
}

// Questions, one at a time

const questions = [];
const asked = new Map(); // what was asked over the wire: its id -> its params, as text
let current = null;

// `told` may have `respond`, which takes the answer in place of the server.
function ask(told) {
  const isKnown = told && [current, ...questions].some((question) => question?.asked === told.asked);
  if (told && !isKnown) questions.push(told);
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

// The server does not want to know any more.
function withdraw(id) {
  const about = asked.get(id);
  const one = [current, ...questions].find((question) => question && JSON.stringify(question.params) === about);
  if (one) tell("answer", { key: one.asked, result: null });
}

function close() {
  current = null;
  $("question").close();
  ask();
}

function answer(given) {
  if (current.respond) current.respond(given);
  else tell("answer", { key: current.asked, result: given });
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
  put("The server asks you", [current.fields.element], (given) => ({ action: "accept", content: given }));
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
  current.fields = group({ properties: { text: { type: "string", title: "What the model is to have said" }, model: { type: "string", title: "Name of the model", default: "a person" } }, required: ["text", "model"] }, { isTop: true });
  const made = ({ text, model }) => ({ role: "assistant", content: { type: "text", text }, model, stopReason: "endTurn" });
  put("The server asks for a model's words", [...messages, value(rest, "Asked for"), current.fields.element], made);
}

function roots() {
  current.fields = field({ type: "string", title: "Folders, as file:// URIs, one a line", maxLength: 100000 }, { name: "roots" });
  const made = (text) => ({ roots: (text ?? "").split("\n").map((uri) => uri.trim()).filter(Boolean).map((uri) => ({ uri })) });
  put("The server asks for the folders that it may work in", [current.fields.element], made);
}

function other(params) {
  current.fields = raw({}, { label: "The result", rows: 6, required: true });
  put(`The server asks: ${current.method}`, [value(params, "Asked for"), current.fields.element], (given) => given);
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

let paused = null; // what has come since
let isFiltering = 0;
let latest = 0; // the number of the last message; a new connection begins with those that are known

const waiting = new Map(); // requests without an answer: what each is called

// What a message is called: its method and what it is about; of an answer, what it answers.
function words(row, message) {
  if (Array.isArray(message)) return `batch of ${message.length}`;
  if (typeof message !== "object" || message === null) return "no message";
  const { id, method, params, error, result: given } = message;
  const number = id === undefined || id === null ? "" : ` #${id}`;
  if (method) {
    const { name: subject, uri, requestId, progressToken, level, ref, progress, total } = params ?? {};
    const far = progress === undefined ? undefined : `${progress}${total === undefined ? "" : ` of ${total}`}`;
    const about = subject ?? uri ?? requestId ?? far ?? progressToken ?? level ?? ref?.name ?? ref?.uri ?? "";
    const called = `${method} ${about}`.trim();
    if (number) waiting.set(`${row.talk} ${row.from} ${id}`, called);
    if (waiting.size > MOST_ROWS) waiting.delete(waiting.keys().next().value);
    return called + number;
  }
  const asked = `${row.talk} ${row.from === "client" ? "server" : "client"} ${id}`;
  const of = waiting.has(asked) ? ` of ${waiting.get(asked)}` : "";
  waiting.delete(asked);
  if (error) return `error ${error.code}${of}${number}: ${error.message}`;
  if (given?.isError) return `tool error${of}${number}`;
  const kinds = { input_required: "question", task: "task" };
  return `${kinds[given?.resultType] ?? "result"}${of}${number}`;
}

function pass(row) {
  if (row.number <= latest) return;
  latest = row.number;
  const message = row.head ?? json(row.text); // of a long one the text is only the beginning
  if (row.talk === own && row.from === "server") follow(message);
  tasks.hear(row, message);
  if (paused) paused.push([row, message]);
  else add(row, message);
  if (paused?.length > MOST_ROWS) paused.shift();
  count();
}

// What this page's own client is told
function follow(message) {
  const { progressToken, ...far } = message?.params ?? {};
  if (message?.method && message.id !== undefined) asked.set(message.id, JSON.stringify(message.params ?? {}));
  if (message?.method === "notifications/cancelled") withdraw(message.params?.requestId);
  if (message?.method === "notifications/progress") calls.get(progressToken)?.progress?.(far);
  if (/^notifications\/(tools|resources|prompts)\/list_changed$/.test(message?.method)) offers();
}

function add(row, message) {
  const isAtEnd = $("rows").scrollTop + $("rows").clientHeight > $("rows").scrollHeight - 40;
  know(row);
  const what = words(row, message);
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
    details.append(plain(shown), row.head ? make("p", { class: "hint" }, `This is the beginning of ${row.size} bytes; a saved trace has them all.`) : "");
  });
  item.hidden = !fits(item);
  $("rows").append(item);
  while ($("rows").childElementCount > MOST_ROWS) $("rows").firstElementChild.remove();
  if (isAtEnd) $("rows").scrollTop = $("rows").scrollHeight;
}

function gap(missed) {
  $("rows").append(make("li", { class: "gap" }, `${missed} messages passed before, or faster than this page could show`));
}

const name = (row) => (row.talk === own ? "this page" : row.client || `client ${row.talk}`);

function know(row) {
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
    $("shown").textContent = `${visible === items.length ? visible : `${visible} of ${items.length}`}${paused ? `, ${paused.length} wait` : ""}`;
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
  return say(`Saved as ${file}; python -m mcp_trio replay ${file} SPEC replays it.`);
});

// The theme, and the beginning

function theme(wanted) {
  document.documentElement.dataset.theme = wanted;
  $("theme").value = wanted;
}

$("theme").addEventListener("change", () => {
  theme($("theme").value);
  localStorage.setItem("theme", $("theme").value);
});
$("revision").addEventListener("change", () => {
  for (const call of [...calls.values()]) call.done({ cancelled: true });
  chosen = null;
  $("chosen").replaceChildren(); // a form of the conversation that has ended sends nothing
  sessionStorage.setItem("revision", $("revision").value);
  live($("revision").value);
});
// A browser keeps six connections to one place, and each page holds one: of a sixth page nothing would get through.
async function isRoom() {
  for (let number = 0; navigator.locks && number < 5; number += 1) {
    const isMine = await new Promise((tell) => {
      navigator.locks.request(`page ${number}`, { ifAvailable: true }, (lock) => (tell(Boolean(lock)), lock && new Promise(() => {})));
    });
    if (isMine) return true;
  }
  return !navigator.locks;
}

theme(localStorage.getItem("theme") ?? "");
if (await isRoom()) live(sessionStorage.getItem("revision"));
else lost("this browser has five pages of this console open already; close one");
