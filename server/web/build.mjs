// Writes dist/ from src/: index.html, app.js, app.css. The same sources and the locked packages give the same bytes, which are
// committed: a build of the server needs no Node. `node build.mjs [FOLDER]` writes there instead.
import { build } from "esbuild";
import { copyFileSync, mkdirSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
const out = process.argv[2] ?? join(here, "dist");

// The licences of what is bundled go with it.
const licence = (name) => `${name}\n\n${readFileSync(join(here, "node_modules", name, "LICENSE"), "utf8").trim()}`;
const banner = `/*! Descent's page, with:\n\n${["preact", "uplot"].map(licence).join("\n\n")}\n*/`;

await build({
  absWorkingDir: here,
  entryPoints: { app: "src/main.jsx" },
  outdir: out,
  bundle: true,
  minify: true,
  format: "esm",
  target: ["chrome117", "firefox115", "safari16"],
  jsx: "automatic",
  jsxImportSource: "preact",
  legalComments: "none",
  banner: { js: banner },
  charset: "utf8",
});
mkdirSync(out, { recursive: true });
copyFileSync(join(here, "src", "index.html"), join(out, "index.html"));
