import { useMemo, useState } from "preact/hooks";
import { answer, answering, send } from "../chat.ts";
import { render } from "../markdown.ts";
import { put } from "../store.ts";
import { newestLeaf, remove, siblings, type Message, type Talk } from "../tree.ts";
import { IconButton } from "./icons.tsx";
import { Images } from "./Images.tsx";

interface Props {
  talk: Talk;
  message: Message;
}

/** One message, with what can be done about it. */
export function MessageView({ talk, message }: Props) {
  const [edited, setEdited] = useState<string | null>(null);
  const busy = answering.value !== null;
  const coming = busy && talk.leaf === message.id && message.role === "assistant";
  if (edited !== null) {
    return <Edit text={edited} cancel={() => setEdited(null)} save={(text) => {
      setEdited(null);
      void send(talk, message.parent, text, message.images);
    }} />;
  }
  return (
    <article class={`message ${message.role} ${coming ? "coming" : ""}`} aria-busy={coming}>
      {message.thought && (
        <details class="thought" open={coming && !message.text}>
          <summary>Thoughts</summary>
          <Markdown text={message.thought} />
        </details>
      )}
      {message.images && <Images of={message.images} />}
      {message.role === "user" ? <div class="text plain">{message.text}</div> : <Markdown text={message.text} />}
      {message.left ? (
        <p class="full" role="status">Context full: the model no longer sees the {message.left} oldest messages.</p>
      ) : null}
      {message.end === "too long" && (
        <p class="full" role="status">
          Your message needs {message.used} tokens, more than the context has. Shorten it, or start the
          server with a larger context (-c).
        </p>
      )}
      {message.error && <p class="error" role="alert">{message.error}</p>}
      <footer>
        <Branches talk={talk} message={message} busy={busy} />
        <IconButton of="copy" label="Copy" onClick={() => void navigator.clipboard?.writeText(message.text)} />
        {message.role === "user" ? (
          <IconButton of="edit" label="Edit" disabled={busy} onClick={() => setEdited(message.text)} />
        ) : (
          <IconButton of="again" label="Answer again" disabled={busy || message.parent === null} onClick={() => void answer(talk, message.parent!)} />
        )}
        <IconButton of="remove" label="Delete" disabled={busy} onClick={() => put(remove(talk, message.id))} />
        <Rate message={message} />
      </footer>
    </article>
  );
}

function Rate({ message }: { message: Message }) {
  const parts = message.tokens ? [`${message.tokens} tokens`, `${(message.rate ?? 0).toFixed(1)} t/s`] : [];
  if (message.end === "length") parts.push("cut: no more room");
  if (message.end === "stopped") parts.push("stopped");
  return parts.length ? <span class="rate">{parts.join(", ")}</span> : null;
}

function Branches({ talk, message, busy }: Props & { busy: boolean }) {
  const all = siblings(talk, message);
  if (all.length < 2) return null;
  const at = all.indexOf(message.id);
  const show = (i: number) => put({ ...talk, leaf: newestLeaf(talk, all[i]!) });
  return (
    <span class="branches">
      <IconButton of="left" label="The branch before" disabled={busy || at === 0} onClick={() => show(at - 1)} />
      {`${at + 1} / ${all.length}`}
      <IconButton of="right" label="The next branch" disabled={busy || at === all.length - 1} onClick={() => show(at + 1)} />
    </span>
  );
}

function Markdown({ text }: { text: string }) {
  const html = useMemo(() => render(text), [text]);
  return <div class="text" dangerouslySetInnerHTML={{ __html: html }} onClick={copyCode} />;
}

/** A click on the bar above a block of code copies it. */
function copyCode(e: MouseEvent): void {
  const bar = (e.target as Element).closest("figcaption");
  const code = bar?.parentElement?.querySelector("code")?.textContent;
  if (code) void navigator.clipboard?.writeText(code);
}

function Edit({ text, save, cancel }: { text: string; save: (text: string) => void; cancel: () => void }) {
  const [value, setValue] = useState(text);
  return (
    <form class="edit" onSubmit={(e) => (e.preventDefault(), value.trim() && save(value))}>
      <textarea aria-label="Edited message" value={value} rows={Math.min(value.split("\n").length + 1, 12)} onInput={(e) => setValue(e.currentTarget.value)} />
      <button type="submit" disabled={answering.value !== null}>Send</button>
      <button type="button" onClick={cancel}>Cancel</button>
    </form>
  );
}
