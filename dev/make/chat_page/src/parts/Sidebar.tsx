import { useRef } from "preact/hooks";
import { answering } from "../chat.ts";
import { current, forget, newest, notice, put, start, theme } from "../store.ts";
import { checked, title } from "../tree.ts";
import { Icon, IconButton } from "./icons.tsx";

/** The conversations of this browser. */
export function Sidebar({ close }: { close: () => void }) {
  return (
    <nav class="sidebar" aria-label="Conversations">
      <button type="button" class="new" onClick={() => (start(), close())}>
        <Icon of="add" /> New chat
      </button>
      <ul>
        {newest.value.map((t) => (
          <li key={t.id} class={t.id === current.value ? "shown" : ""}>
            <button type="button" class="title" onClick={() => ((current.value = t.id), close())}>
              {title(t)}
            </button>
            {t.leaf !== null && (
              <IconButton
                of="remove"
                label={`Delete "${title(t)}"`}
                disabled={answering.value?.id === t.id}
                onClick={() => confirm(`Delete "${title(t)}"?`) && forget(t.id)}
              />
            )}
          </li>
        ))}
      </ul>
      <Foot />
    </nav>
  );
}

function Foot() {
  const file = useRef<HTMLInputElement>(null);
  return (
    <div class="foot">
      <button type="button" onClick={save}>Save all</button>
      <button type="button" onClick={() => file.current?.click()}>Read</button>
      <input ref={file} type="file" accept="application/json" hidden onChange={(e) => read(e.currentTarget)} />
      <select aria-label="Colours" value={theme.value} onChange={(e) => (theme.value = e.currentTarget.value as "system")}>
        <option value="system">auto</option>
        <option value="light">light</option>
        <option value="dark">dark</option>
      </select>
    </div>
  );
}

function save(): void {
  const blob = new Blob([JSON.stringify(newest.value, null, 1)], { type: "application/json" });
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = "conversations.json";
  link.click();
  URL.revokeObjectURL(link.href);
}

async function read(input: HTMLInputElement): Promise<void> {
  const file = input.files?.[0];
  input.value = "";
  if (!file) return;
  try {
    const found: unknown = JSON.parse(await file.text());
    const whole = (Array.isArray(found) ? found : [found]).map(checked).filter((t) => t !== null);
    if (whole.length === 0) throw new Error("no conversations in it");
    whole.forEach((t) => put(t));
    notice.value = `${whole.length} conversations read from ${file.name}`;
  } catch (e) {
    notice.value = `${file.name}: ${(e as Error).message}`;
  }
}
