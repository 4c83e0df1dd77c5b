import { useEffect, useRef, useState } from "preact/hooks";
import { answering, send, stop } from "../chat.ts";
import { attachments } from "../files.ts";
import { editing, sees } from "../store.ts";
import { path, type Attachments, type Talk } from "../tree.ts";
import { Attached } from "./Attached.tsx";
import { IconButton } from "./icons.tsx";

const ROWS = 10;
const NONE: Required<Attachments> = { images: [], files: [] };
const touch = matchMedia("(pointer: coarse)"); // the focus would open the keyboard over the chat

/** Where the user writes. Images and text files come by a button, by pasting or by dropping them. */
export function Composer({ talk }: { talk: Talk }) {
  const [text, setText] = useState("");
  const [given, setGiven] = useState(NONE);
  const field = useRef<HTMLTextAreaElement>(null);
  const files = useRef<HTMLInputElement>(null);
  useEffect(() => {
    if (!touch.matches) field.current?.focus();
  }, [talk.id]);
  const shown = sees.value ? given : { ...given, images: [] };
  const empty = !text.trim() && !shown.images.length && !shown.files.length;
  const go = () => {
    if (empty || answering.value) return;
    setText("");
    setGiven(NONE);
    void send(talk, talk.leaf, text, shown);
  };
  /** Whether there were files among what came. */
  const take = (came: FileList | null | undefined): boolean => {
    const found = [...(came ?? [])];
    if (found.length) {
      void attachments(found).then(({ images, files }) =>
        setGiven((now) => ({ images: [...now.images, ...images], files: [...now.files, ...files] })));
    }
    return found.length > 0;
  };
  return (
    <form
      class="composer"
      onSubmit={(e) => (e.preventDefault(), go())}
      onDragOver={(e) => e.preventDefault()}
      onDrop={(e) => take(e.dataTransfer?.files) && e.preventDefault()}
    >
      <Attached of={shown} remove={(rest) => setGiven({ ...NONE, ...rest })} />
      <IconButton of="attach" label="Attach files" class="add" onClick={() => files.current?.click()} />
      <input
        ref={files}
        type="file"
        name="files"
        multiple
        hidden
        onChange={(e) => (take(e.currentTarget.files), (e.currentTarget.value = ""))}
      />
      <textarea
        ref={field}
        name="message"
        aria-label="Message the model"
        placeholder="Message the model"
        rows={Math.min(text.split("\n").length, ROWS)}
        value={text}
        onInput={(e) => setText(e.currentTarget.value)}
        onPaste={(e) => take(e.clipboardData?.files) && e.preventDefault()}
        onKeyDown={(e) => {
          if (e.key === "Escape" && answering.value) (e.preventDefault(), stop());
          if (e.key === "ArrowUp" && !text && !answering.value) {
            const last = path(talk).findLast((m) => m.role === "user");
            if (last) editing.value = last.id;
          }
          if (e.key !== "Enter" || e.shiftKey || e.isComposing) return;
          e.preventDefault();
          go();
        }}
      />
      {/* keys: a click on one must not become one on the other, when the answer ends meanwhile */}
      {answering.value ? (
        <IconButton key="stop" of="stop" label="Stop" class="main" onClick={stop} />
      ) : (
        <IconButton key="send" of="send" label="Send" class="main" disabled={empty} onClick={go} />
      )}
    </form>
  );
}
