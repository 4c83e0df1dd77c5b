import { useEffect, useRef, useState } from "preact/hooks";
import { answering, send, stop } from "../chat.ts";
import { sees } from "../store.ts";
import type { Talk } from "../tree.ts";
import { IconButton } from "./icons.tsx";
import { Images, read } from "./Images.tsx";

const ROWS = 10;

/** Where the user writes: Enter sends, Shift+Enter makes a line, Escape stops the answer. Images come
 * by a button, by pasting or by dropping them, if the model sees. */
export function Composer({ talk }: { talk: Talk }) {
  const [text, setText] = useState("");
  const [images, setImages] = useState<string[]>([]);
  const field = useRef<HTMLTextAreaElement>(null);
  const files = useRef<HTMLInputElement>(null);
  useEffect(() => field.current?.focus(), [talk.id]);
  const shown = sees.value ? images : [];
  const empty = !text.trim() && !shown.length;
  const go = () => {
    if (empty || answering.value) return;
    setText("");
    setImages([]);
    void send(talk, talk.leaf, text, shown);
  };
  /** Whether there was an image among what came. */
  const take = (given: FileList | null | undefined): boolean => {
    const found = sees.value ? [...(given ?? [])].filter((f) => f.type.startsWith("image/")) : [];
    if (found.length) void read(found).then((urls) => setImages((now) => [...now, ...urls]));
    return found.length > 0;
  };
  return (
    <form
      class="composer"
      onSubmit={(e) => (e.preventDefault(), go())}
      onDragOver={(e) => sees.value && e.preventDefault()}
      onDrop={(e) => take(e.dataTransfer?.files) && e.preventDefault()}
    >
      {shown.length > 0 && <Images of={shown} remove={(i) => setImages(images.filter((_, k) => k !== i))} />}
      {sees.value && (
        <>
          <IconButton of="image" label="Add images" class="add" onClick={() => files.current?.click()} />
          <input
            ref={files}
            type="file"
            name="images"
            accept="image/*"
            multiple
            hidden
            onChange={(e) => (take(e.currentTarget.files), (e.currentTarget.value = ""))}
          />
        </>
      )}
      <textarea
        ref={field}
        name="message"
        aria-label="Message"
        placeholder="Say something"
        rows={Math.min(text.split("\n").length, ROWS)}
        value={text}
        onInput={(e) => setText(e.currentTarget.value)}
        onPaste={(e) => take(e.clipboardData?.files) && e.preventDefault()}
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
        <IconButton key="send" of="send" label="Send" class="main" disabled={empty} onClick={go} />
      )}
    </form>
  );
}
