// Forms for JSON Schemas. A field is {element, read, fill, fault}: `read` returns its value, or undefined for none, and throws
// a Fault if the value cannot be sent; `fault(path, text)` shows an error at the field with this path.

let numbers = 0;

export class Fault extends Error {
  constructor(text, field) {
    super(text);
    this.field = field;
  }

  // Show the error at its field.
  show() {
    this.field.fault([], this.message);
    this.field.focus();
  }
}

export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== undefined && value !== null) element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== undefined && child !== null && child !== false));
  return element;
}

// Resolve references: $ref within the document, and allOf with a single schema.

function resolved(schema, root, depth = 0) {
  if (typeof schema !== "object" || schema === null || depth > 20) return {};
  if (typeof schema.$ref === "string") {
    const { $ref, ...rest } = schema;
    const place = $ref === "#" ? [] : $ref.replace(/^#\//, "").split("/");
    const target = place.reduce((at, key) => at?.[decodeURIComponent(key).replace(/~1/g, "/").replace(/~0/g, "~")], root);
    return $ref.startsWith("#") && target ? { ...resolved(target, root, depth + 1), ...rest } : {};
  }
  if (schema.allOf?.length === 1) {
    const { allOf, ...rest } = schema;
    return { ...resolved(allOf[0], root, depth + 1), ...rest };
  }
  return schema;
}

function options(schema, root) {
  const given = schema.anyOf ?? schema.oneOf ?? (Array.isArray(schema.type) ? schema.type.map((type) => ({ type })) : null);
  if (!given) return null;
  const { anyOf, oneOf, type, default: preset, ...common } = schema;
  return given
    .map((option) => resolved(option, root))
    .filter((option) => option.type !== "null" && option.const !== null)
    .map((option) => ({ ...common, ...option, ...(preset === undefined || preset === null ? {} : { default: preset }) }));
}

// The values that a schema enumerates, each with its title; null if it does not.
function choices(schema) {
  if (schema.enum) return schema.enum.map((value, at) => [value, schema.enumNames?.[at] ?? shown(value)]);
  const titled = schema.oneOf ?? schema.anyOf;
  if (titled?.length && titled.every((option) => option && "const" in option)) {
    return titled.map((option) => [option.const, option.title ?? shown(option.const)]);
  }
  return null;
}

const shown = (value) => (typeof value === "string" ? value : JSON.stringify(value));
const LONG = /(^|_)(text|body|content|query|sql|message|prompt|code|html|css|markdown|notes?|description|script)$/i;

// The field for a schema

export function field(schema, about, root = schema) {
  const depth = about.depth ?? 0;
  let plain = resolved(schema, root);
  const named = choices(plain);
  const alternatives = named ? null : options(plain, root);
  if (alternatives?.length === 1) plain = resolved(alternatives[0], root);
  else if (alternatives?.length > 1) return depth < 5 ? alternation(plain, alternatives, about, root) : raw(plain, about);
  const chosen = named ?? choices(plain);
  if ("const" in plain) return constant(plain, about);
  if (chosen) return choice(plain, chosen, about);
  if (plain.type === "boolean") return about.required || typeof plain.default === "boolean" ? check(plain, about) : choice(plain, [[true, "yes"], [false, "no"]], about);
  if (plain.type === "integer" || plain.type === "number") return number(plain, about);
  if (plain.type === "string") return text(plain, about);
  if (plain.type === "array" && plain.items && !plain.prefixItems && depth < 5) return list(plain, about, root);
  if (plain.type === "object" && plain.properties && depth < 5) return group(plain, about, root);
  return raw(plain, about);
}

// An element for an error message, which is hidden while there is none.
export function complaint(tag, attributes) {
  const element = make(tag, { ...attributes, hidden: true });
  const complain = (text) => {
    element.textContent = text ?? "";
    element.hidden = !text;
  };
  return { element, complain };
}

// The parts of every field: a label, a description, and an element for an error message.
function framed(schema, about, input, kind, read, fill) {
  const id = `field-${++numbers}`;
  input.id = id;
  const note = schema.description && make("div", { class: "note", id: `${id}-note` }, schema.description);
  const { element: wrong, complain } = complaint("div", { class: "fault", id: `${id}-fault` });
  const marks = [kind && make("span", { class: "kind" }, kind), about.required && make("span", { class: "required" }, "required")];
  const label = make("label", { for: id }, about.label ?? schema.title ?? about.name, ...marks);
  const element = make("div", { class: "field" }, label, note, input, wrong);
  const described = () => [note && note.id, !wrong.hidden && wrong.id].filter(Boolean).join(" ");
  const describe = () => (described() ? input.setAttribute("aria-describedby", described()) : input.removeAttribute("aria-describedby"));
  describe();
  return {
    element, read, fill,
    focus: () => input.focus(),
    fault(path, text) {
      complain(text);
      if (text) input.setAttribute("aria-invalid", "true");
      else input.removeAttribute("aria-invalid");
      describe();
      return text ? this : null;
    },
  };
}

function range(schema) {
  const bounds = [];
  if (schema.minimum !== undefined) bounds.push(`from ${schema.minimum}`);
  if (schema.exclusiveMinimum !== undefined) bounds.push(`above ${schema.exclusiveMinimum}`);
  if (schema.maximum !== undefined) bounds.push(`to ${schema.maximum}`);
  if (schema.exclusiveMaximum !== undefined) bounds.push(`below ${schema.exclusiveMaximum}`);
  return [schema.type, ...bounds].join(" ");
}

function number(schema, about) {
  const whole = schema.type === "integer";
  const input = make("input", {
    type: "number", required: about.required, min: schema.minimum, max: schema.maximum, value: schema.default,
    step: whole ? (schema.multipleOf ?? 1) : "any", inputmode: whole ? "numeric" : "decimal",
  });
  const read = () => {
    if (input.value === "") return undefined;
    const value = Number(input.value);
    if (Number.isInteger(value) && !Number.isSafeInteger(value)) throw new Fault("this number is too large to be sent exactly", made);
    return value;
  };
  const made = framed(schema, about, input, range(schema), read, (value) => (input.value = value ?? ""));
  return made;
}

const INPUTS = { date: "date", email: "email", uri: "url", "date-time": "datetime-local", time: "text", password: "password" };

function text(schema, about) {
  const long = !schema.format && ((schema.maxLength ?? 0) > 200 || (schema.maxLength === undefined && LONG.test(about.name ?? "")));
  const limits = { required: about.required, minlength: schema.minLength, maxlength: schema.maxLength };
  const common = { ...limits, placeholder: schema.examples?.length ? shown(schema.examples[0]) : undefined, autocomplete: "off" };
  const type = INPUTS[schema.format] ?? "text";
  const input = long
    ? make("textarea", { ...common, rows: 3 })
    : make("input", { ...common, type, step: type === "datetime-local" ? 1 : undefined, spellcheck: "false" });
  const known = about.complete && suggestions(input, about.complete);
  const isTime = type === "datetime-local";
  const read = () => (input.value === "" ? undefined : isTime ? new Date(input.value).toISOString() : input.value);
  const local = (value) => new Date(new Date(value) - new Date(value).getTimezoneOffset() * 60000).toISOString().slice(0, 19);
  const fill = (value) => (input.value = value === undefined || value === null ? "" : isTime ? local(value) : value);
  if (typeof schema.default === "string") fill(schema.default);
  const made = framed(schema, about, input, schema.format ?? (schema.type === "string" ? "text" : ""), read, fill);
  if (known) made.element.append(known);
  return made;
}

// Completions from the server while the user types.
function suggestions(input, complete) {
  const known = make("datalist", { id: `known-${++numbers}` });
  input.setAttribute("list", known.id);
  let latest = 0;
  const ask = async () => {
    const mine = ++latest;
    await new Promise((go) => setTimeout(go, 150));
    if (mine !== latest) return;
    const values = await complete(input.value);
    if (mine === latest) known.replaceChildren(...values.map((value) => make("option", { value })));
  };
  input.addEventListener("input", ask);
  input.addEventListener("focus", ask);
  return known;
}

function check(schema, about) {
  const input = make("input", { type: "checkbox" });
  input.checked = schema.default === true;
  return framed(schema, about, input, "", () => input.checked, (value) => (input.checked = value === true));
}

function choice(schema, chosen, about) {
  const input = make("select", { required: about.required });
  const same = (value) => chosen.findIndex(([one]) => JSON.stringify(one) === JSON.stringify(value));
  if (!about.required || same(schema.default) < 0) input.append(make("option", { value: "" }, about.required ? "choose" : "(none)"));
  input.append(...chosen.map(([, title], at) => make("option", { value: at }, title)));
  const fill = (value) => (input.value = same(value) < 0 ? "" : same(value));
  fill(schema.default);
  return framed(schema, about, input, "", () => (input.value === "" ? undefined : chosen[input.value][0]), fill);
}

function constant(schema, about) {
  const input = make("input", { type: "text", readonly: true, value: shown(schema.const) });
  return framed(schema, about, input, "always", () => (about.required ? schema.const : undefined), () => {});
}

// Any other value is edited as JSON.

export function raw(schema, about) {
  const input = make("textarea", { class: "json", rows: about.rows ?? 3, required: about.required, spellcheck: "false" });
  const read = () => {
    if (input.value.trim() === "") return undefined;
    try {
      return JSON.parse(input.value);
    } catch (problem) {
      throw new Fault(`expected JSON: ${problem.message}`, made);
    }
  };
  const fill = (value) => (input.value = value === undefined ? "" : JSON.stringify(value, null, 2));
  fill(schema.default);
  const made = framed(schema, about, input, "JSON", read, fill);
  return made;
}

// Fields that contain others

function fieldset(schema, about, ...children) {
  const note = schema.description && make("div", { class: "note" }, schema.description);
  const { element: wrong, complain: fault } = complaint("div", { class: "fault", role: "alert" });
  const mark = about.required && make("span", { class: "required" }, "required");
  const legend = make("legend", {}, about.label ?? schema.title ?? about.name ?? "", mark);
  const element = make("fieldset", { tabindex: -1 }, legend, note, wrong, ...children);
  return { element, fault };
}

const isEmpty = (value) => value === undefined || (typeof value === "object" && value !== null && Object.keys(value).length === 0);

export function group(schema, about, root = schema) {
  const required = new Set(schema.required ?? []);
  const fields = Object.entries(schema.properties).map(([name, inner]) => {
    const complete = about.completes && ((value) => about.completes(name, value));
    const needed = required.has(name) && (about.required || about.isTop);
    return [name, field(inner, { name, required: needed, depth: (about.depth ?? 0) + 1, complete }, root), required.has(name)];
  });
  const children = fields.map(([, inner]) => inner.element);
  const frame = about.isTop ? { element: make("div", { class: "items" }, ...children) } : fieldset(schema, about, ...children);
  return {
    element: frame.element,
    focus: () => fields[0]?.[1].focus(),
    read() {
      const pairs = fields.map(([name, inner]) => [name, inner.read()]).filter(([, value]) => value !== undefined);
      const value = Object.fromEntries(pairs);
      return about.required || about.isTop || !isEmpty(value) ? value : undefined;
    },
    fill(value) {
      for (const [name, inner] of fields) inner.fill(value?.[name]);
    },
    fault(path, text) {
      const inner = fields.find(([name]) => name === path[0])?.[1];
      if (text) return inner ? inner.fault(path.slice(1), text) : (frame.fault?.(text), frame.fault ? this : null);
      for (const [, one] of fields) one.fault([], null);
      frame.fault?.(null);
      return null;
    },
  };
}

function list(schema, about, root) {
  const items = resolved(schema.items, root);
  const named = choices(items);
  if (named && schema.uniqueItems !== false && about.required !== undefined && named.length <= 30) return several(schema, named, about);
  const holder = make("div", { class: "items" });
  const fields = [];
  const add = (value) => {
    const inner = field(schema.items, { name: `${about.label ?? schema.title ?? about.name} ${fields.length + 1}`, required: true, depth: (about.depth ?? 0) + 1 }, root);
    const remove = make("button", { type: "button", class: "small", "aria-label": "Remove this item" }, "Remove");
    const row = make("div", { class: "item" }, inner.element, remove);
    remove.addEventListener("click", () => {
      fields.splice(fields.indexOf(inner), 1);
      row.remove();
      more.focus();
    });
    if (value !== undefined) inner.fill(value);
    fields.push(inner);
    holder.append(row);
    return inner;
  };
  const more = make("button", { type: "button", class: "small", onclick: () => add().focus() }, "Add an item");
  const frame = fieldset(schema, about, holder, make("div", {}, more));
  const fill = (values) => {
    fields.length = 0;
    holder.replaceChildren();
    for (const value of Array.isArray(values) ? values : []) add(value);
  };
  fill(schema.default ?? Array((about.required && schema.minItems) || 0).fill(undefined));
  return {
    element: frame.element, fill,
    focus: () => more.focus(),
    read: () => (fields.length || about.required ? fields.map((inner) => inner.read() ?? null) : undefined),
    fault(path, text) {
      const inner = fields[path[0]];
      if (text) return inner ? inner.fault(path.slice(1), text) : (frame.fault(text), this);
      for (const one of fields) one.fault([], null);
      frame.fault(null);
      return null;
    },
  };
}

// A choice of several values from a list
function several(schema, named, about) {
  const boxes = named.map(([, title]) => [make("input", { type: "checkbox" }), title]);
  const frame = fieldset(schema, about, ...boxes.map(([box, title]) => make("label", { class: "check" }, box, title)));
  const fill = (values) => named.forEach(([value], at) => (boxes[at][0].checked = Array.isArray(values) && values.includes(value)));
  fill(schema.default);
  return {
    element: frame.element, fill,
    focus: () => boxes[0]?.[0].focus(),
    read() {
      const chosen = named.filter((_, at) => boxes[at][0].checked).map(([value]) => value);
      return chosen.length || about.required ? chosen : undefined;
    },
    fault(path, text) {
      frame.fault(text);
      return text ? this : null;
    },
  };
}

// One of several schemas
function alternation(schema, alternatives, about, root) {
  const title = (option) => option.title ?? (option.type === "array" ? "list" : option.type) ?? "JSON";
  const made = alternatives.map((option) => field(option, { ...about, label: title(option), depth: (about.depth ?? 0) + 1 }, root));
  const kinds = alternatives.map(title);
  const picker = make("select", { "aria-label": `Kind of ${about.name ?? "value"}` }, ...kinds.map((kind, at) => make("option", { value: at }, kind)));
  const holder = make("div", { class: "items" });
  const frame = fieldset({ ...schema, title: schema.title }, about, picker, holder);
  const current = () => made[picker.value];
  const show = () => holder.replaceChildren(current().element);
  picker.addEventListener("change", show);
  const fits = (option, value) => {
    const types = { string: typeof value === "string", boolean: typeof value === "boolean", array: Array.isArray(value) };
    types.number = typeof value === "number";
    types.integer = Number.isInteger(value);
    types.object = typeof value === "object" && value !== null && !Array.isArray(value);
    return types[option.type] ?? true;
  };
  show();
  return {
    element: frame.element,
    focus: () => picker.focus(),
    read: () => current().read(),
    fill(value) {
      const at = alternatives.findIndex((option) => value !== undefined && fits(option, value));
      picker.value = Math.max(at, 0);
      show();
      current().fill(value);
    },
    fault: (path, text) => current().fault(path, text),
  };
}

// The whole form for an object's schema, which can be switched to JSON

export function wholeForm(schema, { completes } = {}) {
  const root = schema ?? {};
  const plain = resolved(root, root);
  const byFields = plain.properties || !plain.type || plain.type === "object" ? group({ ...plain, properties: plain.properties ?? {} }, { isTop: true, completes }, root) : null;
  const open = raw({}, { label: "Arguments", rows: 8, required: false });
  const isOpen = plain.additionalProperties !== false && !plain.properties;
  let asJson = !byFields || isOpen;
  const holder = make("div", { class: "items" });
  const current = () => (asJson ? open : byFields);
  const show = () => holder.replaceChildren(current().element);
  const pathOf = (text) => [...(/\$((?:\.[\w-]+|\[\d+\]|\['[^']*'\])+)/.exec(text)?.[1] ?? "").matchAll(/\.([\w-]+)|\[(\d+)\]|\['([^']*)'\]/g)].map((found) => found[1] ?? found[2] ?? found[3]);
  if (isOpen) open.fill({});
  show();
  return {
    element: holder,
    isEmpty: !isOpen && byFields && Object.keys(plain.properties ?? {}).length === 0,
    get asJson() {
      return asJson;
    },
    switchTo(json) {
      if (json && !asJson) open.fill(byFields.read() ?? {});
      if (!json && asJson) byFields.fill(open.read() ?? {});
      asJson = json;
      show();
    },
    canSwitch: Boolean(byFields) && !isOpen,
    read: () => current().read() ?? {},
    focus: () => current().focus(),
    forget: () => current().fault([], null),
    // Show an error from the server at the field of its `$.path`. Returns false if there is no such field.
    blame(text) {
      const path = pathOf(text);
      const found = path.length > 0 && current().fault(path, text);
      if (found) found.focus();
      return Boolean(found);
    },
  };
}
