import { useEffect, useRef } from "preact/hooks";
import { panel } from "../store.ts";

const KEYS: [string, string][] = [
  ["Enter", "Send"],
  ["Shift+Enter", "New line"],
  ["Esc", "Stop, or close"],
  ["↑ in an empty message", "Edit the last message"],
  ["Ctrl+K", "Search chats"],
  ["Ctrl+Shift+O", "New chat"],
  ["Ctrl+,", "Settings"],
  ["/", "Write a message"],
  ["?", "Shortcuts"],
];

const shown = (key: string) => (navigator.platform.startsWith("Mac") ? key.replace("Ctrl", "⌘") : key);

/** The keys of the page (main.tsx and Composer.tsx). */
export function Shortcuts() {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => dialog.current?.showModal(), []);
  const close = () => (panel.value = "");
  return (
    <dialog ref={dialog} class="shortcuts" aria-labelledby="shortcuts" onClose={close} onClick={(e) => e.target === dialog.current && close()}>
      <h2 id="shortcuts">Shortcuts</h2>
      <dl>
        {KEYS.map(([key, effect]) => [<dt key={key}><kbd>{shown(key)}</kbd></dt>, <dd key={effect}>{effect}</dd>])}
      </dl>
      <button type="button" onClick={close}>Close</button>
    </dialog>
  );
}
