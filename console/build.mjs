// Bundles the console into dist/, which the binary carries. The output is the same on every
// machine for the same lock file, so CI can tell a stale bundle from a fresh one.
import { build } from "esbuild";
import { copyFile, mkdir } from "node:fs/promises";

await mkdir("dist", { recursive: true });
await build({
  entryPoints: { console: "src/main.tsx" },
  outdir: "dist",
  bundle: true,
  minify: true,
  format: "esm",
  target: "es2022",
  jsx: "automatic",
  define: { "process.env.NODE_ENV": '"production"' },
  legalComments: "none",
  logLevel: "warning",
});
await copyFile("src/index.html", "dist/index.html");
