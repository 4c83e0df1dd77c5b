import { notice } from "../store.ts";
import { IconButton } from "./icons.tsx";

/** Small pictures of images; with `remove` they can be taken away. */
export function Images({ of, remove }: { of: string[]; remove?: (index: number) => void }) {
  return (
    <div class="images">
      {of.map((url, i) => (
        <span key={i}>
          <img src={url} alt={`Image ${i + 1}`} />
          {remove && <IconButton of="remove" label={`Remove image ${i + 1}`} onClick={() => remove(i)} />}
        </span>
      ))}
    </div>
  );
}

/** The images among files, as data: URLs. */
export async function read(files: Iterable<File>): Promise<string[]> {
  const images = [...files].filter((f) => f.type.startsWith("image/"));
  try {
    return await Promise.all(images.map(url));
  } catch (e) {
    notice.value = `The image cannot be read: ${(e as Error).message}`;
    return [];
  }
}

function url(file: File): Promise<string> {
  return new Promise((done, failed) => {
    const reader = new FileReader();
    reader.onload = () => done(String(reader.result));
    reader.onerror = () => failed(reader.error ?? new Error(file.name));
    reader.readAsDataURL(file);
  });
}
