import { useEffect, useRef, useState } from "preact/hooks";
import { answering, send, stop } from "../chat.ts";
import type { Talk } from "../tree.ts";
import { IconButton } from "./icons.tsx";

const ROWS = 10;

/** Where the user writes: Enter sends, Shift+Enter makes a line, Escape stops the answer. */
export function Composer({ talk }: { talk: Talk }) {
  const [text, setText] = useState("");
  const field = useRef<HTMLTextAreaElement>(null);
  useEffect(() => field.current?.focus(), [talk.id]);
  const go = () => {
    if (!text.trim() || answering.value) return;
    setText("");
    void send(talk, talk.leaf, text);
  };
  return (
    <form class="composer" onSubmit={(e) => (e.preventDefault(), go())}>
      <textarea
        ref={field}
        name="message"
        aria-label="Message"
        placeholder="Say something"
        rows={Math.min(text.split("\n").length, ROWS)}
        value={text}
        onInput={(e) => setText(e.currentTarget.value)}
        onKeyDown={(e) => {
          if (e.key === "Escape") stop();
          if (e.key !== "Enter" || e.shiftKey || e.isComposing) return;
          e.preventDefault();
          go();
        }}
      />
      {/* keys: a click on one must not become one on the other, when the answer ends meanwhile */}
      {answering.value ? (
        <IconButton key="stop" of="stop" label="Stop" class="main" onClick={stop} />
      ) : (
        <IconButton key="send" of="send" label="Send" class="main" disabled={!text.trim()} onClick={go} />
      )}
    </form>
  );
}
