import { question } from "../tools.ts";
import type { Call, Step } from "../tree.ts";

/** The part of an answer that ends with calls, which the user allows or declines. */
export function Calls({ step }: { step: Step }) {
  return <>{step.calls.map((call) => <OneCall key={call.id} call={call} />)}</>;
}

function OneCall({ call }: { call: Call }) {
  const asked = question.value?.call.id === call.id ? question.value : null;
  if (asked) {
    return (
      <section class="call" role="alertdialog" aria-label={`Call ${call.name}?`}>
        <p>The model requests a call of <b>{visible(call.name)}</b>:</p>
        <pre>{visible(pretty(call.arguments))}</pre>
        <p class="consent">
          <button type="button" onClick={() => asked.answer("once")}>Allow</button>
          <button type="button" onClick={() => asked.answer("always")}>Always allow this tool</button>
          <button type="button" onClick={() => asked.answer("no")}>Decline</button>
        </p>
      </section>
    );
  }
  return (
    <details class={`call ${call.failed ? "failed" : ""}`}>
      <summary>
        <b>{visible(call.name)}</b> <code>{visible(call.arguments)}</code>
      </summary>
      <pre>{call.result === undefined ? "…" : visible(call.result)}</pre>
    </details>
  );
}

function pretty(json: string): string {
  try {
    return JSON.stringify(JSON.parse(json || "{}"), null, 2);
  } catch {
    return json;
  }
}

/** Text with its invisible characters as numbers: they could change what it seems to be. */
function visible(text: string): string {
  return text.replace(/[^\P{C}\n\t]/gu, (c) => `\\u{${c.codePointAt(0)!.toString(16)}}`);
}
