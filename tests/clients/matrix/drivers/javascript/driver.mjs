// What the drivers of clients in TypeScript and JavaScript have in common. Their arguments and their output are
// those of ../python/driver.py.

const SECONDS = 30;
const TRIP = { city: "Oslo", stops: [{ name: "Bergen", nights: 2 }] };

// The client does not have the feature. The message says what it has instead.
export class Unsupported extends Error {}

// Uses a client's features. A subclass has `connect`, `close`, `listTools` and `callTool`, and methods for the
// features that only some clients have. `callTool` returns {text, isError, structured, types}.
export class Driver {
  noStructured = "gives programs the text only";
  noTypes = "does not give programs the content as the server sent it";

  constructor(target) {
    this.target = target;
  }

  // The environment of a server on stdio. By default, clients pass on only a few variables.
  get environment() {
    return { ...process.env };
  }

  async tools() {
    return (await this.listTools()).sort();
  }

  async call() {
    return (await this.callTool("greet", { name: "Zoë 🎉" })).text;
  }

  async no_arguments() {
    return (await this.callTool("revision", {})).text;
  }

  async nested_arguments() {
    return (await this.callTool("plan", { trip: TRIP, tags: ["by train", "cheap"] })).text;
  }

  async parallel_calls() {
    const calls = Array.from({ length: 10 }, (_, n) => this.callTool("greet", { name: String(n) }));
    return (await Promise.all(calls)).map((result) => result.text);
  }

  async structured_results() {
    const { structured } = await this.callTool("measure", { city: "Oslo" });
    if (structured === undefined) throw new Unsupported(this.noStructured);
    return structured;
  }

  async content_types() {
    const { types } = await this.callTool("show", {});
    if (types === undefined) throw new Unsupported(this.noTypes);
    return types;
  }

  async tool_errors() {
    const { isError, text } = await this.callTool("fail", {});
    return isError ? text : `no error: ${text}`;
  }

  async pagination() {
    return (await this.listTools()).sort();
  }

  // Called without a connection.
  async reconnect() {
    const texts = [];
    for (const name of ["first", "second"]) {
      const driver = new this.constructor(this.target);
      await driver.connect();
      texts.push((await driver.callTool("greet", { name })).text);
      await driver.close();
    }
    return texts;
  }
}

export async function main(driverClass) {
  const [transport, target, revision, ...features] = process.argv.slice(2);
  const place = { transport, revision };
  if (transport === "stdio") place.command = JSON.parse(target);
  else place.url = target;
  const driver = new driverClass(place);
  try {
    await driver.connect();
    for (const name of features) if (name !== "reconnect") await report(driver, name);
    await driver.close();
  } catch (error) {
    // The runner reports the features that are left as failed.
    console.error(error);
  }
  if (features.includes("reconnect")) await report(driver, "reconnect");
  process.exit(0);
}

async function report(driver, name) {
  const line = JSON.stringify({ feature: name, ...(await outcome(driver, name)) });
  await new Promise((written) => process.stdout.write(`${line}\n`, written));
}

async function outcome(driver, name) {
  if (driver[name] === undefined) return { unsupported: "has no such feature" };
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`not done after ${SECONDS} s`)), SECONDS * 1000);
  });
  try {
    return { saw: await Promise.race([driver[name](), late]) };
  } catch (error) {
    if (error instanceof Unsupported) return { unsupported: error.message };
    console.error(error);
    return { error: String(error).slice(0, 500) };
  } finally {
    clearTimeout(timer);
  }
}

// A result as the server sent it.
export function plain(result) {
  return {
    text: result.content.map((item) => item.text ?? "").join(""),
    isError: result.isError ?? false,
    structured: result.structuredContent,
    types: result.content.map((item) => item.type),
  };
}
