// Writes clock.html: the page with its script, which has the app SDK in it. Hosts load a
// page from one document, so nothing may be left to fetch.
//
//     npm ci && npm run build

import { readFile, writeFile } from "node:fs/promises";
import { build } from "esbuild";

const here = new URL("./", import.meta.url);
const { outputFiles } = await build({
  entryPoints: [new URL("src/clock.js", here).pathname],
  bundle: true,
  format: "esm",
  legalComments: "inline",
  minify: true,
  target: "es2022",
  write: false,
});
// A script ends at the first end tag, even within one of its strings.
const script = outputFiles[0].text.replaceAll("</script", "<\\/script");
const page = await readFile(new URL("src/clock.html", here), "utf8");
await writeFile(
  new URL("clock.html", here),
  page.replace("/* script */", () => script.trim()),
);
