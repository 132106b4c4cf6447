// The page of the clock. The host passes it the result of `show_clock`, and it calls
// `get_time` itself for other time zones.

import { App } from "@modelcontextprotocol/ext-apps";

const time = document.querySelector("#time");
const place = document.querySelector("#place");
const zones = document.querySelector("#zone");
const button = document.querySelector("#show");

// The last time that the server told, and when it arrived.
let told = null;

function show(result) {
  if (result.isError || !result.structuredContent) {
    place.textContent = result.content?.[0]?.text ?? "The server told no time.";
    return;
  }
  const { zone, date, seconds, zones: known } = result.structuredContent;
  told = { seconds, at: performance.now() };
  place.textContent = `${zone}, ${date}`;
  zones.replaceChildren(...known.map((name) => new Option(name, name)));
  zones.value = zone;
  tick();
}

// The server tells the seconds since midnight once; the page counts on by itself.
function tick() {
  if (told === null) return;
  const passed = (performance.now() - told.at) / 1000;
  const seconds = Math.floor(told.seconds + passed) % 86400;
  const parts = [seconds / 3600, (seconds / 60) % 60, seconds % 60];
  time.textContent = parts
    .map((part) => String(Math.floor(part)).padStart(2, "0"))
    .join(":");
}

const app = new App({ name: "clock", version: "1.0.0" }, {});
app.ontoolresult = show;
app.onhostcontextchanged = dress;
button.addEventListener("click", async () => {
  button.disabled = true;
  try {
    const zone = zones.value || "UTC";
    show(await app.callServerTool({ name: "get_time", arguments: { zone } }));
  } catch (error) {
    place.textContent = `The host did not call the server: ${error.message}`;
  } finally {
    button.disabled = false;
  }
});

function dress(context) {
  const root = document.documentElement;
  if (context?.theme) root.style.colorScheme = context.theme;
  for (const [name, value] of Object.entries(context?.styles?.variables ?? {})) {
    if (value !== undefined) root.style.setProperty(name, value);
  }
}

setInterval(tick, 250);
await app.connect();
dress(app.getHostContext());
