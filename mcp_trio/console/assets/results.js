// Show results according to their types. Nothing in them is ever parsed as HTML.

import { make } from "./forms.js";

const MOST_ROWS = 500;

const isScalar = (value) => value === null || typeof value !== "object";
const isFlat = (value) => !isScalar(value) && !Array.isArray(value) && Object.values(value).every(isScalar);
const pretty = (value) => JSON.stringify(value, null, 2);
const bytes = (encoded) => Math.floor((encoded.replace(/=+$/, "").length * 3) / 4);
const size = (count) => (count < 1024 ? `${count} bytes` : count < 1024 ** 2 ? `${(count / 1024).toFixed(1)} KiB` : `${(count / 1024 ** 2).toFixed(1)} MiB`);

export const plain = (text, attributes = {}) => make("pre", { tabindex: 0, ...attributes }, text);
export const folded = (title, ...children) => make("details", { class: "more" }, make("summary", {}, title), ...children);

// A value: a table if it has rows, or else a tree

export function value(given, label = "Structured content") {
  const keys = isScalar(given) || Array.isArray(given) ? [] : Object.keys(given);
  if (keys.length === 1 && keys[0] === "result") return value(given.result, label); // some revisions wrap it like this
  if (Array.isArray(given) && given.length && given.every(isFlat)) return table(label, [...new Set(given.flatMap(Object.keys))], given.map((row) => (key) => row[key]));
  if (keys.length && Array.isArray(given.columns) && Array.isArray(given.rows) && given.columns.every(isScalar) && given.rows.every((row) => Array.isArray(row) && row.every(isScalar))) {
    const { columns, rows, ...rest } = given;
    const shown = table(label, columns, rows.map((row) => (_, at) => row[at]));
    return keys.length > 2 ? make("div", { class: "box" }, shown, tree(rest)) : shown;
  }
  return tree(given);
}

function table(label, columns, rows) {
  const cell = (one) => make("td", { class: typeof one === "number" ? "number" : undefined }, one === undefined ? "" : one === null ? make("span", { class: "dim" }, "null") : String(one));
  const head = make("thead", {}, make("tr", {}, ...columns.map((column) => make("th", { scope: "col" }, String(column)))));
  const body = make("tbody", {}, ...rows.slice(0, MOST_ROWS).map((row) => make("tr", {}, ...columns.map((column, at) => cell(row(column, at))))));
  const more = rows.length > MOST_ROWS ? `, the first ${MOST_ROWS} of them` : "";
  const caption = make("caption", {}, `${label}: ${rows.length} ${rows.length === 1 ? "row" : "rows"}${more}`);
  return make("div", { class: "wide", tabindex: 0, role: "region", "aria-label": label }, make("table", {}, caption, head, body));
}

function tree(given) {
  return make("div", { class: "tree" }, branch(given, true));
}

function branch(given, isOpen) {
  if (isScalar(given)) return make("span", { class: typeof given === "string" ? "string" : "scalar" }, typeof given === "string" ? `"${given}"` : String(given));
  const entries = Object.entries(given);
  const many = `${Array.isArray(given) ? "list" : "object"} of ${entries.length}`;
  if (!entries.length) return make("span", { class: "dim" }, Array.isArray(given) ? "[]" : "{}");
  const details = make("details", {}, make("summary", { class: "dim" }, many));
  const fill = () => {
    if (details.childElementCount > 1) return;
    const rows = entries.slice(0, MOST_ROWS).map(([key, inner]) => make("li", {}, make("span", { class: "key" }, key), ": ", branch(inner, entries.length <= 12)));
    if (entries.length > MOST_ROWS) rows.push(make("li", { class: "dim" }, `and ${entries.length - MOST_ROWS} more`));
    details.append(make("ul", {}, ...rows));
  };
  details.addEventListener("toggle", fill);
  if (isOpen) {
    fill();
    details.open = true;
  }
  return details;
}

// Content

export function content(item, read) {
  const mime = item.mimeType ?? "application/octet-stream";
  if (item.type === "text") return plain(item.text ?? "");
  if (item.type === "image") return picture(item.data ?? "", mime, "Image from the tool");
  if (item.type === "audio") return sound(item.data ?? "", mime);
  if (item.type === "resource_link") return link(item, read);
  if (item.type === "resource") return resource(item.resource ?? {});
  return make("div", { class: "box" }, make("div", { class: "note" }, `Content of type ${item.type}`), tree(item));
}

function picture(data, mime, alt) {
  const about = `${mime}, ${size(bytes(data))}`;
  const image = make("img", { alt: `${alt}: ${about}`, src: `data:${/^image\/[\w.+-]+$/.test(mime) ? mime : "image/png"};base64,${data}` });
  const caption = make("figcaption", {}, about);
  image.addEventListener("load", () => (caption.textContent = `${about}, ${image.naturalWidth} by ${image.naturalHeight}`));
  image.addEventListener("error", () => image.replaceWith(make("p", { class: "problem" }, "The browser cannot display this image")));
  return make("figure", {}, image, caption);
}

function sound(data, mime) {
  const about = `${mime}, ${size(bytes(data))}`;
  const source = `data:${/^audio\/[\w.+-]+$/.test(mime) ? mime : "audio/wav"};base64,${data}`;
  return make("figure", {}, make("audio", { controls: true, src: source, "aria-label": `Audio: ${about}` }), make("figcaption", {}, about));
}

function link(item, read) {
  const open = make("button", { type: "button", class: "small", onclick: () => read(item.uri) }, "Read");
  const about = [item.mimeType, item.size !== undefined && size(item.size)].filter(Boolean).join(", ");
  return make("div", { class: "box" }, make("strong", {}, item.title ?? item.name ?? "A resource"), make("code", {}, item.uri ?? ""), about && make("span", { class: "note" }, about), item.description && make("div", { class: "text" }, item.description), open);
}

export function resource(item) {
  const mime = item.mimeType ?? "";
  const about = make("div", { class: "note" }, [item.uri, mime].filter(Boolean).join(", "));
  if (item.blob !== undefined) return make("div", { class: "box" }, about, blob(item.blob, mime));
  const text = item.text ?? "";
  const parsed = /json/.test(mime) ? json(text) : undefined;
  return make("div", { class: "box" }, about, parsed === undefined ? plain(text) : value(parsed, "JSON"), parsed === undefined ? null : folded("As text", plain(text)));
}

function blob(data, mime) {
  if (mime.startsWith("image/")) return picture(data, mime, "Image from the resource");
  if (mime.startsWith("audio/")) return sound(data, mime);
  return make("p", { class: "note" }, `${size(bytes(data))}, not shown`);
}

export function json(text) {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

// Results, by method

export function result(method, given, read) {
  if (method === "tasks/get") return taskOutcome(given, read);
  if (method === "resources/read") return (given.contents ?? []).map(resource);
  if (method === "prompts/get") return [given.description && make("p", { class: "text dim" }, given.description), ...(given.messages ?? []).map((one) => said(one, read))];
  if ("toolResult" in given) return [typeof given.toolResult === "string" ? plain(given.toolResult) : value(given.toolResult, "Result")];
  const items = given.content ?? [];
  if (given.structuredContent === undefined) return items.length ? items.map((item) => content(item, read)) : [make("p", { class: "hint" }, "Done. The result is empty.")];
  const same = pretty(given.structuredContent);
  const repeats = (item) => item.type === "text" && [same, pretty(given.structuredContent?.result)].includes(pretty(json(item.text) ?? item.text));
  const [repeated, others] = [items.filter(repeats), items.filter((item) => !repeats(item))];
  return [value(given.structuredContent), ...others.map((item) => content(item, read)), ...repeated.map((item) => folded("As text", plain(item.text)))];
}

function taskOutcome(given, read) {
  if (given.error) return [make("p", { class: "problem text" }, `${given.error.message} (${given.error.code})`)];
  return result("tools/call", given.result ?? {}, read);
}

function said(message, read) {
  return make("div", { class: "box" }, make("strong", {}, message.role), content(message.content ?? {}, read));
}

export const asWire = (given) => folded("Raw result", plain(pretty(given)));
