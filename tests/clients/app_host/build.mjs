// Bundles host.js, with what it imports, into the folder dist.

import { cp } from "node:fs/promises";
import { build } from "esbuild";

await build({
  entryPoints: ["host.js"],
  bundle: true,
  format: "esm",
  outdir: "dist",
  target: "es2022",
});
for (const page of ["host.html", "sandbox.html"]) await cp(page, `dist/${page}`);
