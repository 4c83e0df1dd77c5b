import { render } from "preact";
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { connect } from "./chat.ts";
import { Composer } from "./parts/Composer.tsx";
import { IconButton } from "./parts/icons.tsx";
import { MessageView } from "./parts/Message.tsx";
import { Key, Settings } from "./parts/Settings.tsx";
import { Sidebar } from "./parts/Sidebar.tsx";
import { model, models, nCtx, notice, restore, talk } from "./store.ts";
import { path } from "./tree.ts";

function Page() {
  const [menu, setMenu] = useState(false);
  const [tuning, setTuning] = useState(false);
  const shown = talk.value;
  return (
    <div class={`page ${menu ? "menu" : ""}`}>
      <Sidebar close={() => setMenu(false)} />
      <main>
        <header>
          <IconButton of="menu" label="Conversations" class="menu" onClick={() => setMenu(!menu)} />
          <ModelName />
          <IconButton of="tune" label="Settings" onClick={() => setTuning(!tuning)} />
        </header>
        <Messages />
        {notice.value && <p class="notice" role="status">{notice.value}</p>}
        <Key />
        <Meter />
        {shown && <Composer talk={shown} />}
      </main>
      {tuning && <Settings />}
    </div>
  );
}

function ModelName() {
  if (models.value.length < 2) return <h1>{model.value || "llama-py"}</h1>;
  return (
    <select aria-label="Model" value={model.value} onChange={(e) => (model.value = e.currentTarget.value)}>
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
      {shown.leaf === null && <p class="empty">What you write stays on this computer and its server.</p>}
      {path(shown).map((m) => <MessageView key={`${shown.id}/${m.id}`} talk={shown} message={m} />)}
    </div>
  );
}

void restore();
void connect();
render(<Page />, document.getElementById("page")!);
