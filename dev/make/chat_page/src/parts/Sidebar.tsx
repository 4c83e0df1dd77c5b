import { useEffect, useRef, useState } from "preact/hooks";
import { answering } from "../chat.ts";
import { download } from "../files.ts";
import { current, forget, newest, notice, panel, put, query, rename, start, theme } from "../store.ts";
import { checked, matches, title, toMarkdown, type Talk } from "../tree.ts";
import { Icon, IconButton } from "./icons.tsx";

const close = () => {
  if (panel.value === "chats") panel.value = "";
};

/** The chats of this browser. */
export function Sidebar() {
  const found = newest.value.filter((t) => matches(t, query.value));
  return (
    <nav class="sidebar" aria-label="Chats">
      <div class="top">
        <button type="button" class="new" onClick={() => ((query.value = ""), start(), close())}>
          <Icon of="add" /> New chat
        </button>
        <IconButton of="close" label="Close" class="close" onClick={close} />
      </div>
      <input
        type="search"
        name="query"
        aria-label="Search chats"
        placeholder="Search chats"
        value={query.value}
        onInput={(e) => (query.value = e.currentTarget.value)}
      />
      <ul>
        {found.map((t) => <Row key={t.id} talk={t} />)}
        {!found.length && newest.value.length > 0 && <li class="none">No chat has these words. Try fewer words.</li>}
      </ul>
      <Foot />
    </nav>
  );
}

/** A chat in the list; its actions are below it. */
function Row({ talk }: { talk: Talk }) {
  const [open, setOpen] = useState(false);
  const [naming, setNaming] = useState(false);
  const name = title(talk);
  const done = (given: string | null) => {
    setNaming(false);
    setOpen(false);
    if (given !== null) rename(talk, given);
  };
  if (naming) return <li><Rename talk={talk} done={done} /></li>;
  return (
    <li class={talk.id === current.value ? "shown" : ""}>
      <button
        type="button"
        class="title"
        aria-current={talk.id === current.value ? "true" : undefined}
        onClick={() => ((current.value = talk.id), close())}
      >
        {name}
      </button>
      {talk.leaf !== null && (
        <IconButton of="more" label={`Actions for "${name}"`} expanded={open} onClick={() => setOpen(!open)} />
      )}
      {open && (
        <div class="actions">
          <button type="button" onClick={() => setNaming(true)}>Rename</button>
          <button type="button" onClick={() => download(name, "md", toMarkdown(talk))}>Export Markdown</button>
          <button type="button" onClick={() => download(name, "json", JSON.stringify(talk, null, 1))}>Export JSON</button>
          <button
            type="button"
            disabled={answering.value?.id === talk.id}
            onClick={() => confirm(`Delete "${name}"?`) && forget(talk.id)}
          >
            Delete
          </button>
        </div>
      )}
    </li>
  );
}

/** Without a name, a chat is called by its first words. */
function Rename({ talk, done }: { talk: Talk; done: (name: string | null) => void }) {
  const ended = useRef(false); // a field that leaves the page loses the focus, too
  const end = (name: string | null) => {
    if (!ended.current) done(name);
    ended.current = true;
  };
  const field = useRef<HTMLInputElement>(null);
  useEffect(() => field.current?.select(), []);
  return (
    <input
      class="rename"
      name="title"
      aria-label="Chat name"
      placeholder="Chat name"
      maxLength={100}
      defaultValue={title(talk)}
      ref={field}
      onBlur={(e) => end(e.currentTarget.value)}
      onKeyDown={(e) => {
        if (e.key === "Enter" && !e.isComposing) end(e.currentTarget.value);
        if (e.key === "Escape") (e.stopPropagation(), end(null));
      }}
    />
  );
}

function Foot() {
  const file = useRef<HTMLInputElement>(null);
  return (
    <div class="foot">
      <button type="button" onClick={() => download("chats", "json", JSON.stringify(newest.value, null, 1))}>Save all</button>
      <button type="button" onClick={() => file.current?.click()}>Import</button>
      <input ref={file} type="file" name="import" accept="application/json" hidden onChange={(e) => read(e.currentTarget)} />
      <select aria-label="Theme" title="Theme" value={theme.value} onChange={(e) => (theme.value = e.currentTarget.value as "system")}>
        <option value="system">Auto</option>
        <option value="light">Light</option>
        <option value="dark">Dark</option>
      </select>
      <IconButton of="keys" label="Shortcuts" onClick={() => (panel.value = "shortcuts")} />
    </div>
  );
}

async function read(input: HTMLInputElement): Promise<void> {
  const file = input.files?.[0];
  input.value = "";
  if (!file) return;
  const text = await file.text().catch(() => "");
  const whole = parsed(text).map(checked).filter((t) => t !== null);
  whole.forEach((t) => put(t));
  const n = whole.length === 1 ? "1 chat" : `${whole.length} chats`;
  notice.value = {
    text: whole.length
      ? `Imported ${n} from ${file.name}.`
      : `${file.name} has no chats. Choose a file from Save all or Export JSON.`,
  };
}

function parsed(text: string): unknown[] {
  try {
    const found: unknown = JSON.parse(text);
    return Array.isArray(found) ? found : [found];
  } catch {
    return [];
  }
}
