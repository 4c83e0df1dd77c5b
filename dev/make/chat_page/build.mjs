// Bundles the page into the package that serves it. `sources.sha256` there is of these sources: a test
// fails when they have changed and the page was not built anew.
import { createHash } from "node:crypto";
import { mkdir, readFile, readdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { build } from "esbuild";

const TO = "../../../apps/llama_py_server/page";
await mkdir(TO, { recursive: true });
const made = await build({
  entryPoints: [{ in: "src/main.tsx", out: "page" }, { in: "page.css", out: "page" }],
  bundle: true,
  minify: true,
  format: "esm",
  target: "es2022",
  jsx: "automatic",
  jsxImportSource: "preact",
  legalComments: "none",
  metafile: true,
  outdir: TO,
});
const html = await readFile("index.html", "utf8");
await writeFile(join(TO, "index.html"), `${html.replace(/>\s+</g, "><").trim()}\n`);

const packages = new Set();
for (const path of Object.keys(made.metafile.inputs)) {
  const found = path.match(/node_modules\/((?:@[^/]+\/)?[^/]+)\//);
  if (found) packages.add(found[1]);
}
const licences = [];
for (const name of [...packages].sort()) {
  const folder = join("node_modules", name);
  const { version } = JSON.parse(await readFile(join(folder, "package.json"), "utf8"));
  const file = (await readdir(folder)).find((f) => /^licen[cs]e/i.test(f));
  const text = file ? await readFile(join(folder, file), "utf8") : "";
  licences.push(`${name} ${version}\n\n${text.trim()}\n`);
}
await writeFile(join(TO, "LICENSES.txt"), licences.join(`\n${"-".repeat(72)}\n\n`));

const hash = createHash("sha256");
const sources = (await readdir(".", { recursive: true }))
  .map((f) => f.replaceAll("\\", "/"))
  .filter((f) => /^(src\/.*\.tsx?|index\.html|page\.css|package-lock\.json)$/.test(f) && !f.includes(".test."))
  .sort();
for (const f of sources) hash.update(`${f}\n`).update((await readFile(f, "utf8")).replaceAll("\r\n", "\n"));
await writeFile(join(TO, "sources.sha256"), `${hash.digest("hex")}\n`);
console.log(`${sources.length} sources, ${packages.size} packages: ${Object.entries(made.metafile.outputs)
  .map(([f, o]) => `${f} ${(o.bytes / 1024).toFixed(0)} KiB`)
  .join(", ")}`);
