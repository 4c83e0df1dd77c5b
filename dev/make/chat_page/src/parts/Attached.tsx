import type { Attachments } from "../tree.ts";
import { Icon, IconButton } from "./icons.tsx";

interface Props {
  of: Attachments;
  remove?: (of: Attachments) => void;
}

const without = <T,>(all: T[], index: number) => all.filter((_, i) => i !== index);

/** Small pictures of images, and names of files; with `remove` they can be taken away. */
export function Attached({ of, remove }: Props) {
  const { images = [], files = [] } = of;
  if (!images.length && !files.length) return null;
  return (
    <div class="attached">
      {images.map((url, i) => (
        <span key={`image ${i}`} class="image">
          <img src={url} alt={`Image ${i + 1}`} />
          {remove && <IconButton of="remove" label={`Remove image ${i + 1}`} onClick={() => remove({ images: without(images, i), files })} />}
        </span>
      ))}
      {files.map(({ name, text }, i) => (
        <details key={`file ${i}`} class="file">
          <summary>
            <Icon of="file" /> <b>{name}</b> <small>{size(text)}</small>
            {remove && <IconButton of="remove" label={`Remove ${name}`} onClick={() => remove({ images, files: without(files, i) })} />}
          </summary>
          <pre>{text}</pre>
        </details>
      ))}
    </div>
  );
}

function size(text: string): string {
  const lines = text.replace(/\n$/, "").split("\n").length;
  return lines === 1 ? "1 line" : `${lines} lines`;
}
