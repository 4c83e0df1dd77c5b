// codex: `codex exec` with a provider of its settings. It has chat only; its responses are streams
// of the Responses API.
import { execFileSync } from "node:child_process";
import { mkdtempSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { ASK, OPENAI, checkText, run } from "./feature.mjs";

const program = resolve("node_modules/.bin/codex");
const provider = `{name="llama-py", base_url="${OPENAI}", wire_api="responses"}`;

async function ask() {
  const folder = mkdtempSync(join(tmpdir(), "codex-"));
  const flags = [
    "-m", "demo", "-c", "model_provider=llama", "-c", `model_providers.llama=${provider}`,
    "--skip-git-repo-check", "--sandbox", "read-only", ASK,
  ];
  const env = { ...process.env, CODEX_HOME: folder };
  const how = { cwd: folder, env, timeout: 100_000, stdio: ["ignore", "pipe", "pipe"] };
  return checkText(execFileSync(program, ["exec", ...flags], how).toString());
}

run("@openai/codex", { chat: ask, stream: ask });
