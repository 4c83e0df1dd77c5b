// Files from the user's computer and to it.

import { notice, sees } from "./store.ts";
import type { Attachments, TextFile } from "./tree.ts";

const LARGEST_TEXT = 1 << 20; // bytes: far more than a context holds

/** A name that a file can have, made of a title. */
const named = (title: string) => title.replace(/[^\p{L}\p{N}]+/gu, "-").replace(/^-|-$/g, "") || "chat";

/** Have the browser save a text as a file. */
export function download(title: string, ending: "json" | "md", text: string): void {
  const type = ending === "json" ? "application/json" : "text/markdown";
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type }));
  link.download = `${named(title)}.${ending}`;
  link.click();
  URL.revokeObjectURL(link.href);
}

/** Images and text files for a message. Of a file that cannot be sent, the notice tells why. */
export async function attachments(files: Iterable<File>): Promise<Required<Attachments>> {
  const found = { images: [] as string[], files: [] as TextFile[] };
  for (const file of files) {
    try {
      if (file.type.startsWith("image/") && file.type !== "image/svg+xml") found.images.push(await image(file));
      else found.files.push({ name: file.name, text: await text(file) });
    } catch (e) {
      notice.value = { text: (e as Error).message };
    }
  }
  return found;
}

async function image(file: File): Promise<string> {
  if (!sees.value) {
    throw new Error(`${file.name}: this model cannot read images. Choose a model with vision, or start the server with --mmproj FILE.`);
  }
  return new Promise((done, failed) => {
    const reader = new FileReader();
    reader.onload = () => done(String(reader.result));
    reader.onerror = () => failed(unreadable(file));
    reader.readAsDataURL(file);
  });
}

async function text(file: File): Promise<string> {
  if (file.size > LARGEST_TEXT) {
    throw new Error(`${file.name}: the file is larger than 1 MiB. Attach a part of it.`);
  }
  const bytes = await file.arrayBuffer().catch(() => { throw unreadable(file); });
  try {
    const found = new TextDecoder("utf-8", { fatal: true }).decode(bytes);
    if (!found.includes("\0")) return found;
  } catch {
    // not UTF-8
  }
  throw new Error(`${file.name}: this is not a text file. Attach a text file in UTF-8 or an image.`);
}

const unreadable = (file: File) => new Error(`${file.name}: the browser cannot read the file. Attach it again.`);

/** Copy a text; also without a secure connection, where browsers have no clipboard for pages. */
export async function copy(text: string): Promise<void> {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const field = document.createElement("textarea");
    field.value = text;
    document.body.append(field);
    field.select();
    document.execCommand("copy");
    field.remove();
  }
}
