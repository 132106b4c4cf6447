// The tasks that the page knows, whichever client created them: their states, their questions, and the actions on them.

import { make } from "./forms.js";

const MOST_TASKS = 200;
const MOST_CALLS = 2000;
const DEFAULT_INTERVAL = 1000;
const MIN_INTERVAL = 50;
// The error code for a task that has expired or that belongs to another client.
const UNKNOWN = -32602;
const OVER = ["completed", "failed", "cancelled", "expired"];

const isOver = (task) => OVER.includes(task.status);

// The list of tasks. `host` is the page:
//   request(method, params)  a promise of {result}, {error} or {cancelled}
//   hasTasks()               whether requests about tasks can be sent now
//   ask(question)            shows the dialog of a question
//   settle(key)              closes it
//   name(row)                the name of the client of a message
//   show(title, id)          shows the result of a task
export class TaskList {
  constructor(host, section) {
    this.host = host;
    this.section = section;
    this.list = section.querySelector("ul");
    this.known = new Map();
    // The tools of calls without an answer, by conversation and id of the request.
    this.tools = new Map();
    section.querySelector("button").addEventListener("click", () => this.clear());
  }

  // Update the list from a message of any conversation.
  receive(row, message) {
    const call = `${row.talk} ${message?.id}`;
    if (row.from === "client") {
      if (message?.method === "tools/call") this.tools.set(call, message.params?.name);
      if (this.tools.size > MOST_CALLS) this.tools.delete(this.tools.keys().next().value);
      return;
    }
    if (row.task) this.update(this.find(row.task.taskId, this.tools.get(call), row), row.task);
    this.tools.delete(call);
  }

  // A conversation has begun, which may support other actions.
  connected() {
    for (const task of this.known.values()) {
      this.render(task);
      this.schedule(task);
    }
  }

  // Follow a task that this page has created until it ends. Returns its outcome in the form of `request`.
  // `changed` is called with each state.
  async follow(created, title, changed) {
    const task = this.find(created.taskId, title);
    task.isOwner = true;
    task.isFollowed = true;
    this.schedule(task);
    try {
      return await this.poll(task, created, changed);
    } finally {
      task.isFollowed = false;
      this.schedule(task);
    }
  }

  async poll(task, created, changed) {
    let state = created;
    for (;;) {
      changed(state);
      if (state.status === "completed") return { result: state.result };
      if (state.status === "failed") return { error: state.error };
      if (state.status === "cancelled") return { cancelled: true };
      this.askNew(task, state.inputRequests ?? {});
      await this.pause(task, state.pollIntervalMs);
      const outcome = this.host.hasTasks() ? await this.get(task) : { cancelled: true };
      if (outcome.cancelled) return { error: { message: "This conversation has ended. The task continues without it." } };
      if (outcome.error) return outcome;
      state = outcome.result;
    }
  }

  async cancel(id) {
    const outcome = await this.host.request("tasks/cancel", { taskId: id });
    this.wake(this.known.get(id));
    return outcome;
  }

  // Requests

  get(task) {
    return this.host.request("tasks/get", { taskId: task.id });
  }

  pause(task, interval = DEFAULT_INTERVAL) {
    return new Promise((resume) => {
      task.resume = resume;
      setTimeout(resume, Math.max(interval, MIN_INTERVAL));
    });
  }

  // Poll a task now.
  wake(task) {
    if (task?.isFollowed) task.resume?.();
    else if (task) this.refresh(task);
  }

  // Poll a task that is not followed, for example one that was created before the page was reloaded.
  schedule(task) {
    clearTimeout(task.timer);
    if (isOver(task) || task.isFollowed || !this.canUse(task)) return;
    task.timer = setTimeout(() => this.refresh(task), 3 * Math.max(task.interval, MIN_INTERVAL));
  }

  // The result also arrives as a message, which updates the list.
  async refresh(task) {
    const { error } = await this.get(task);
    if (error?.code === UNKNOWN) this.update(task, { status: "expired" });
  }

  canUse(task) {
    return task.isOwner && this.host.hasTasks();
  }

  // Questions

  askNew(task, questions) {
    for (const key of Object.keys(questions)) {
      if (task.asked.has(key)) continue;
      task.asked.add(key);
      this.ask(task, key, questions[key]);
    }
  }

  ask(task, key, { method, params = {} }) {
    const respond = (result) => this.respond(task, key, result);
    this.host.ask({ asked: `${task.id} ${key}`, method, params, respond });
  }

  // Answer a question. A task cannot continue without an answer, so a refusal cancels it.
  async respond(task, key, result) {
    if (result === null) {
      await this.cancel(task.id);
      return;
    }
    await this.host.request("tasks/update", { taskId: task.id, inputResponses: { [key]: result } });
    this.wake(task);
  }

  // Rendering

  find(id, title, row) {
    let task = this.known.get(id);
    if (!task) {
      task = { id, title: id, status: "working", questions: {}, asked: new Set(), interval: DEFAULT_INTERVAL };
      task.client = row ? this.host.name(row) : "this page";
      task.isOwner = row?.isOwner;
      task.parts = this.item(task);
      this.known.set(id, task);
      this.list.prepend(task.parts.item);
      this.section.hidden = false;
      this.forgetOldest();
    }
    if (title) task.title = title;
    return task;
  }

  item(task) {
    const title = make("span");
    const state = make("span", { class: "state" });
    const message = make("p", { class: "text" });
    const about = make("p", { class: "note" });
    const cancel = make("button", { type: "button", class: "small", onclick: () => this.cancel(task.id) }, "Cancel");
    const result = make("button", { type: "button", class: "small", onclick: () => this.host.show(task.title, task.id) }, "Show result");
    const questions = make("div", { class: "buttons" });
    const heading = make("h3", { tabindex: -1 }, title, state);
    const item = make("li", { "data-task": task.id }, heading, message, about, questions, make("div", { class: "buttons" }, cancel, result));
    return { item, heading, title, state, message, about, cancel, result, questions };
  }

  update(task, { status, statusMessage, pollIntervalMs, inputRequests = {} }) {
    for (const key of Object.keys(task.questions)) {
      if (!(key in inputRequests)) this.host.settle(`${task.id} ${key}`);
    }
    task.status = status;
    task.message = statusMessage;
    task.questions = inputRequests;
    task.interval = pollIntervalMs ?? task.interval;
    this.render(task);
    this.schedule(task);
  }

  render(task) {
    const { item, heading, title, state, message, about, cancel, result, questions } = task.parts;
    const hadFocus = item.contains(document.activeElement);
    title.textContent = task.title;
    state.textContent = task.status.replace("_", " ");
    message.textContent = task.message ?? "";
    message.hidden = !task.message;
    about.textContent = `${task.client}, task ${task.id}`;
    item.className = task.status;
    const canUse = this.canUse(task);
    cancel.hidden = isOver(task) || !canUse;
    cancel.setAttribute("aria-label", `Cancel the task ${task.title}`);
    result.hidden = !["completed", "failed"].includes(task.status) || !canUse;
    result.setAttribute("aria-label", `Show the result of the task ${task.title}`);
    this.renderQuestions(task, questions, canUse);
    // The button that had the focus may have been removed.
    const isFocusLost = hadFocus && !document.activeElement?.offsetParent;
    if (isFocusLost || (hadFocus && !item.contains(document.activeElement))) heading.focus();
  }

  renderQuestions(task, holder, canUse) {
    const keys = JSON.stringify([canUse, ...Object.keys(task.questions)]);
    if (holder.dataset.keys === keys) return;
    holder.dataset.keys = keys;
    holder.replaceChildren(
      ...Object.entries(task.questions).map(([key, question]) => {
        const text = question.params?.message ?? question.method;
        if (!canUse) return make("p", { class: "text" }, text);
        return make("button", { type: "button", class: "small", onclick: () => this.ask(task, key, question) }, `Answer: ${text}`);
      }),
    );
  }

  // Remove finished tasks.
  clear() {
    for (const task of [...this.known.values()]) if (isOver(task)) this.forget(task);
    this.section.hidden = this.known.size === 0;
    if (this.section.hidden) document.getElementById("main").focus();
  }

  forgetOldest() {
    if (this.known.size <= MOST_TASKS) return;
    const tasks = [...this.known.values()];
    this.forget(tasks.find(isOver) ?? tasks[0]);
  }

  forget(task) {
    clearTimeout(task.timer);
    this.known.delete(task.id);
    task.parts.item.remove();
  }
}
