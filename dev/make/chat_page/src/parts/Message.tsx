import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { answer, answering, retry, send } from "../chat.ts";
import { copy } from "../files.ts";
import { render } from "../markdown.ts";
import { editing, nCtx, put } from "../store.ts";
import { newestLeaf, remove, siblings, withFiles, type Message, type Talk } from "../tree.ts";
import { Attached } from "./Attached.tsx";
import { Calls } from "./Calls.tsx";
import { IconButton } from "./icons.tsx";

interface Props {
  talk: Talk;
  message: Message;
}

/** One message, with what can be done about it. */
export function MessageView({ talk, message }: Props) {
  const busy = answering.value !== null;
  const coming = busy && talk.leaf === message.id && message.role === "assistant";
  if (editing.value === message.id && message.role === "user") {
    return <Edit message={message} close={() => (editing.value = null)} save={(text) => {
      editing.value = null;
      void send(talk, message.parent, text, message);
    }} />;
  }
  return (
    <article class={`message ${message.role} ${coming ? "coming" : ""}`} aria-busy={coming}>
      {message.thought && (
        <details class="thought" open={coming && !message.text}>
          <summary>Reasoning</summary>
          <Markdown text={message.thought} />
        </details>
      )}
      <Attached of={message} />
      {message.steps?.map((step, i) => (
        <div class="step" key={i}>
          {step.text && <Markdown text={step.text} />}
          <Calls step={step} />
        </div>
      ))}
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
      {message.error && (
        <p class="error" role="alert">
          {message.error}{" "}
          <button type="button" disabled={busy || message.parent === null} onClick={() => void retry(talk, message)}>Retry</button>
        </p>
      )}
      <footer>
        <Branches talk={talk} message={message} busy={busy} />
        <Copy text={withFiles(message)} />
        {message.role === "user" ? (
          <IconButton of="edit" label="Edit" disabled={busy} onClick={() => (editing.value = message.id)} />
        ) : (
          <IconButton of="again" label="Regenerate" disabled={busy || message.parent === null} onClick={() => void answer(talk, message.parent!)} />
        )}
        <IconButton of="remove" label="Delete" disabled={busy} onClick={() => put(remove(talk, message.id))} />
        <Rate message={message} />
      </footer>
    </article>
  );
}

function Copy({ text }: { text: string }) {
  const [done, setDone] = useState(false);
  useEffect(() => {
    const timer = done ? setTimeout(() => setDone(false), 1500) : 0;
    return () => clearTimeout(timer);
  }, [done]);
  return <IconButton of={done ? "done" : "copy"} label={done ? "Copied" : "Copy"} onClick={() => void copy(text).then(() => setDone(true))} />;
}

function Rate({ message }: { message: Message }) {
  const parts = message.tokens ? [`${message.tokens} tokens`, `${(message.rate ?? 0).toFixed(1)} t/s`] : [];
  const full = nCtx.value > 0 && (message.used ?? 0) >= nCtx.value;
  if (message.end === "length") parts.push(full ? "context full" : "length limit reached");
  if (message.end === "stopped") parts.push("stopped");
  if (message.end === "too many calls") parts.push("too many calls of tools");
  return parts.length ? <span class="rate">{parts.join(", ")}</span> : null;
}

function Branches({ talk, message, busy }: Props & { busy: boolean }) {
  const all = siblings(talk, message);
  if (all.length < 2) return null;
  const at = all.indexOf(message.id);
  const show = (i: number) => put({ ...talk, leaf: newestLeaf(talk, all[i]!) });
  return (
    <span class="branches">
      <IconButton of="left" label="Previous branch" disabled={busy || at === 0} onClick={() => show(at - 1)} />
      {`${at + 1} / ${all.length}`}
      <IconButton of="right" label="Next branch" disabled={busy || at === all.length - 1} onClick={() => show(at + 1)} />
    </span>
  );
}

function Markdown({ text }: { text: string }) {
  const html = useMemo(() => render(text), [text]);
  return <div class="text" dangerouslySetInnerHTML={{ __html: html }} onClick={copyCode} onKeyDown={(e) => e.key === "Enter" && copyCode(e)} />;
}

/** The bar above a block of code copies it. */
function copyCode(e: Event): void {
  const bar = (e.target as Element).closest("figcaption");
  const code = bar?.parentElement?.querySelector("code")?.textContent;
  if (code) void copy(code);
}

function Edit({ message, save, close }: { message: Message; save: (text: string) => void; close: () => void }) {
  const [value, setValue] = useState(message.text);
  const field = useRef<HTMLTextAreaElement>(null);
  const empty = !value.trim() && !message.images && !message.files;
  const go = () => empty || answering.value || save(value);
  useEffect(() => {
    field.current?.focus();
    field.current?.setSelectionRange(value.length, value.length);
    field.current?.form?.scrollIntoView({ block: "nearest" });
  }, []);
  return (
    <form
      class="edit"
      onSubmit={(e) => (e.preventDefault(), go())}
      onKeyDown={(e) => {
        if (e.key === "Escape") (e.stopPropagation(), close());
        if (e.key !== "Enter" || e.shiftKey || e.isComposing || e.target !== field.current) return;
        e.preventDefault();
        go();
      }}
    >
      <Attached of={message} />
      <textarea ref={field} name="edited" aria-label="Edit message" title="Edit message" value={value} rows={Math.min(value.split("\n").length + 1, 12)} onInput={(e) => setValue(e.currentTarget.value)} />
      <button type="submit" disabled={empty || answering.value !== null}>Send</button>
      <button type="button" onClick={close}>Cancel</button>
    </form>
  );
}
