import { render } from "preact";
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import { answering, connect, stop } from "./chat.ts";
import { Composer } from "./parts/Composer.tsx";
import { IconButton } from "./parts/icons.tsx";
import { MessageView } from "./parts/Message.tsx";
import { Key, Settings } from "./parts/Settings.tsx";
import { Shortcuts } from "./parts/Shortcuts.tsx";
import { Sidebar } from "./parts/Sidebar.tsx";
import { model, models, nCtx, notice, panel, query, restore, start, talk } from "./store.ts";
import { path } from "./tree.ts";

function Page() {
  const shown = talk.value;
  return (
    <div class="page" data-panel={panel.value}>
      <Sidebar />
      <div class="shade" onClick={() => (panel.value = "")} />
      <main>
        <header>
          <IconButton of="menu" label="Chats" class="menu" onClick={() => toggle("chats")} />
          <ModelName />
          <IconButton of="tune" label="Settings" expanded={panel.value === "settings"} onClick={() => toggle("settings")} />
        </header>
        <Messages />
        <Notice />
        <Key />
        <Meter />
        {shown && <Composer talk={shown} />}
      </main>
      {panel.value === "settings" && <Settings />}
      {panel.value === "shortcuts" && <Shortcuts />}
    </div>
  );
}

function toggle(which: "chats" | "settings"): void {
  panel.value = panel.value === which ? "" : which;
}

function Notice() {
  if (!notice.value) return null;
  const { text, retry } = notice.value;
  return (
    <p class="notice" role="status">
      {text} {retry && <button type="button" onClick={retry}>Retry</button>}
      <IconButton of="close" label="Dismiss" onClick={() => (notice.value = null)} />
    </p>
  );
}

function ModelName() {
  if (models.value.length < 2) return <h1>{model.value || "llama-py"}</h1>;
  return (
    <select aria-label="Model" title="Model" value={model.value} onChange={(e) => (model.value = e.currentTarget.value)}>
      {models.value.map(({ name }) => <option key={name}>{name}</option>)}
    </select>
  );
}

/** How much of the context the shown conversation uses. */
function Meter() {
  const used = talk.value && path(talk.value).findLast((m) => m.used)?.used;
  if (!used || !nCtx.value) return null;
  const n = Math.min(used, nCtx.value);
  return (
    <label class="context">
      Context <meter aria-label="Context" max={nCtx.value} high={nCtx.value * 0.75} value={n} />
      {`${n} of ${nCtx.value} tokens`}
    </label>
  );
}

/** Follows the answer as long as its end is in sight. */
function Messages() {
  const box = useRef<HTMLDivElement>(null);
  const follows = useRef(true);
  const shown = talk.value;
  useLayoutEffect(() => {
    if (box.current && follows.current) box.current.scrollTop = box.current.scrollHeight;
  }, [shown]);
  useEffect(() => {
    if (!box.current) return;
    const { current } = box; // the window, or a phone's keyboard, changes its size
    const observer = new ResizeObserver(() => follows.current && (current.scrollTop = current.scrollHeight));
    observer.observe(current);
    return () => observer.disconnect();
  }, [!shown]);
  if (!shown) return <div class="messages" />;
  return (
    <div
      class="messages"
      ref={box}
      onScroll={(e) => {
        const { scrollTop, scrollHeight, clientHeight } = e.currentTarget;
        follows.current = scrollHeight - scrollTop - clientHeight < 60;
      }}
    >
      {shown.leaf === null && <p class="empty">Chats stay in this browser. Messages go to this server only.</p>}
      {path(shown).map((m) => <MessageView key={`${shown.id}/${m.id}`} talk={shown} message={m} />)}
    </div>
  );
}

const narrow = matchMedia("(max-width: 760px)"); // as in page.css
const focus = (selector: string) => requestAnimationFrame(() => document.querySelector<HTMLElement>(selector)?.focus());

/** Keys of the whole page; Shortcuts.tsx lists them. */
function onKey(e: KeyboardEvent): void {
  const typing = (e.target as Element).matches?.("input, textarea, select");
  const ctrl = (e.ctrlKey || e.metaKey) && !e.altKey;
  const key = e.key.toLowerCase();
  if (e.isComposing || (panel.value === "shortcuts" && key !== "escape")) return;
  if (key === "escape") {
    if (e.defaultPrevented || (!panel.value && !answering.value)) return;
    if (panel.value) panel.value = "";
    else stop();
  } else if (ctrl && !e.shiftKey && key === "k") {
    if (narrow.matches) panel.value = "chats";
    focus("input[name=query]");
  } else if (ctrl && e.shiftKey && key === "o") {
    query.value = panel.value = "";
    start();
    focus("textarea[name=message]");
  } else if (ctrl && key === ",") toggle("settings");
  else if (!typing && !ctrl && key === "/") focus("textarea[name=message]");
  else if (!typing && !ctrl && key === "?") panel.value = "shortcuts";
  else return;
  e.preventDefault();
}

document.addEventListener("keydown", onKey);
void restore();
void connect();
render(<Page />, document.getElementById("page")!);
