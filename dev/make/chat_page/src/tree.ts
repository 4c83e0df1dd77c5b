// A conversation is a tree: to edit a message or to ask again makes a branch beside the old one.

/** A text file of a message. */
export interface TextFile {
  name: string;
  text: string;
}

/** Parts of a message beside its text. */
export interface Attachments {
  images?: string[]; // data: URLs, before the text
  files?: TextFile[]; // before the text
}

/** A call of a tool in an answer, and its result. */
export interface Call {
  id: string;
  name: string;
  arguments: string; // JSON, as the model wrote it
  result?: string; // missing while it is asked for or runs
  failed?: boolean;
}

/** A part of an answer that ends with calls; its results and another part follow. */
export interface Step {
  text: string;
  thought: string;
  calls: Call[];
}

export interface Message extends Attachments {
  id: number;
  parent: number | null;
  role: "user" | "assistant";
  text: string;
  thought: string;
  steps?: Step[]; // of an answer with calls of tools, before its text
  tokens?: number; // of an answer
  rate?: number; // tokens per second
  used?: number; // tokens of the context, with this answer
  left?: number; // oldest messages that were not sent: the context had no room
  end?: string; // "stop", "length", "stopped" by the user
  error?: string;
}

export interface Talk {
  id: string;
  title: string;
  system: string;
  messages: Record<number, Message>;
  leaf: number | null; // the end of the branch that is shown
  changed: number; // milliseconds since 1970
}

export function newTalk(id: string, changed: number): Talk {
  return { id, title: "", system: "", messages: {}, leaf: null, changed };
}

/** From the first message to `leaf`. */
export function path(talk: Talk, leaf: number | null = talk.leaf): Message[] {
  const found: Message[] = [];
  for (let id = leaf; id !== null; ) {
    const message: Message | undefined = talk.messages[id];
    if (message === undefined) break;
    found.push(message);
    id = message.parent;
  }
  return found.reverse();
}

export const INTERRUPTED = "interrupted";
const PER_MESSAGE = 16; // characters that a template adds to each
const SHARE = 0.75; // of the context for the prompt; the answer has the rest

function size(messages: Message[]): number {
  return messages.reduce((n, m) => n + withFiles(m).length + stepsText(m).length + PER_MESSAGE, 0);
}

function stepsText(m: Message): string {
  const calls = (step: Step) => step.calls.map((c) => `${c.name} ${c.arguments}\n${c.result ?? ""}`);
  return (m.steps ?? []).flatMap((step) => [step.text, ...calls(step)]).join("\n\n");
}

/** The text of a message as the model gets it: its files first, each in a fence of its own. */
export function withFiles(m: Pick<Message, "text" | "files">): string {
  const files = (m.files ?? []).map(({ name, text }) => {
    const longest = Math.max(2, ...(text.match(/`+/g) ?? []).map((ticks) => ticks.length));
    const fence = "`".repeat(longest + 1);
    return `${name}:\n${fence}\n${text.replace(/\n$/, "")}\n${fence}`;
  });
  return [...files, ...(m.text ? [m.text] : [])].join("\n\n");
}

/** A path without its oldest turn; null if it has only one. */
export function withoutOldest(messages: Message[]): Message[] | null {
  const next = messages.findIndex((m, i) => i > 0 && m.role === "user");
  return next < 0 ? null : messages.slice(next);
}

/** The newest turns of a path with `tokens` that leave room for an answer; at least one turn. */
export function newestTurns(messages: Message[], tokens: number, nCtx: number): Message[] {
  const most = (size(messages) * SHARE * nCtx) / tokens;
  for (;;) {
    const fewer = withoutOldest(messages);
    if (fewer === null || size(messages) <= most) return messages;
    messages = fewer;
  }
}

/** The part of a path to send, estimated from the tokens of its latest answer. */
export function fitted(messages: Message[], nCtx: number): Message[] {
  const last = messages.findLastIndex((m) => m.used);
  if (last < 0 || !nCtx) return messages;
  const { used, left } = messages[last]!;
  const seen = messages.slice(left ?? 0);
  const then = messages.slice(left ?? 0, last + 1);
  return newestTurns(seen, (used! * size(seen)) / size(then), nCtx);
}

/** The ids of the messages beside one, it among them, oldest first. */
export function siblings(talk: Talk, of: Message): number[] {
  return Object.values(talk.messages)
    .filter((m) => m.parent === of.parent && m.role === of.role)
    .map((m) => m.id)
    .sort((a, b) => a - b);
}

/** The newest end of the branches that go through a message. */
export function newestLeaf(talk: Talk, id: number): number {
  for (;;) {
    const after = Object.values(talk.messages).filter((m) => m.parent === id);
    if (after.length === 0) return id;
    id = Math.max(...after.map((m) => m.id));
  }
}

/** A new message behind `parent`, as the end of the branch that is shown. */
export function add(
  talk: Talk,
  parent: number | null,
  role: Message["role"],
  text: string,
  { images, files }: Attachments = {},
): [Talk, Message] {
  const id = Math.max(0, ...Object.keys(talk.messages).map(Number)) + 1;
  const message: Message = { id, parent, role, text, thought: "" };
  if (images?.length) message.images = images;
  if (files?.length) message.files = files;
  return [{ ...talk, messages: { ...talk.messages, [id]: message }, leaf: id }, message];
}

export function change(talk: Talk, id: number, fields: Partial<Message>): Talk {
  const message = talk.messages[id];
  if (message === undefined) return talk;
  return { ...talk, messages: { ...talk.messages, [id]: { ...message, ...fields } } };
}

/** Without a message and all behind it; the branch beside it is shown, or what came before. */
export function remove(talk: Talk, id: number): Talk {
  const message = talk.messages[id];
  if (message === undefined) return talk;
  const gone = new Set([id]);
  const messages: Record<number, Message> = {};
  for (const m of Object.values(talk.messages).sort((a, b) => a.id - b.id)) {
    if (gone.has(m.id) || (m.parent !== null && gone.has(m.parent))) gone.add(m.id);
    else messages[m.id] = m;
  }
  const rest = { ...talk, messages };
  const beside = siblings(talk, message).filter((other) => other !== id);
  const last = beside[beside.length - 1];
  return { ...rest, leaf: last === undefined ? message.parent : newestLeaf(rest, last) };
}

export function title(talk: Talk): string {
  const first = Object.values(talk.messages).find((m) => m.parent === null);
  const words = first?.text.trim().split("\n")[0]?.slice(0, 60);
  return talk.title || words || first?.files?.[0]?.name || (first?.images ? "An image" : "New chat");
}

/** Whether a chat has all words of a query, in its title or in its messages. */
export function matches(talk: Talk, query: string): boolean {
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  if (!words.length) return true;
  const texts = Object.values(talk.messages).map((m) => withFiles(m));
  const all = [title(talk), ...texts].join("\n").toLowerCase();
  return words.every((word) => all.includes(word));
}

/** The shown branch of a chat as Markdown. */
export function toMarkdown(talk: Talk): string {
  const parts = path(talk).map((m) => {
    const images = m.images?.length ? [`(${m.images.length} images)`] : [];
    const body = [...images, stepsText(m), withFiles(m)].map((s) => s.trim()).filter(Boolean).join("\n\n");
    return `## ${m.role === "user" ? "User" : "Assistant"}\n\n${body}\n`;
  });
  const system = talk.system.trim() ? [`## System\n\n${talk.system.trim()}\n`] : [];
  return [`# ${title(talk)}\n`, ...system, ...parts].join("\n");
}

/** A call of an earlier visit; one that had not ended gets no result any more. */
function finished(call: Call): Call {
  return { ...call, result: typeof call.result === "string" ? call.result : INTERRUPTED };
}

/** What a file or the browser's store gave, if it is a conversation. */
export function checked(found: unknown): Talk | null {
  const talk = found as Talk;
  if (typeof talk !== "object" || talk === null || typeof talk.id !== "string") return null;
  if (typeof talk.messages !== "object" || talk.messages === null) return null;
  const whole = Object.entries(talk.messages).every(
    ([id, m]) =>
      typeof m === "object" &&
      m !== null &&
      m.id === Number(id) &&
      typeof m.text === "string" &&
      (m.role === "user" || m.role === "assistant") &&
      (m.parent === null || (m.parent < m.id && m.parent in talk.messages)),
  );
  if (!whole || (talk.leaf !== null && !(talk.leaf in talk.messages))) return null;
  const text = (s: unknown) => (typeof s === "string" ? s : "");
  const isImage = (s: unknown) => typeof s === "string" && s.startsWith("data:image/");
  const isFile = (f: any) => typeof f?.name === "string" && typeof f.text === "string";
  const isCall = (c: any) => typeof c?.id === "string" && typeof c.name === "string" && typeof c.arguments === "string";
  const isStep = (s: any) => typeof s?.text === "string" && Array.isArray(s.calls) && s.calls.every(isCall);
  const some = <T>(found: T[] | undefined, is: (x: T) => boolean) =>
    Array.isArray(found) && found.some(is) ? found.filter(is) : undefined;
  return {
    id: talk.id,
    title: text(talk.title),
    system: text(talk.system),
    messages: Object.fromEntries(
      Object.entries(talk.messages).map(([id, { images, files, steps, ...m }]) => {
        const message: Message = { ...m, thought: text(m.thought) };
        const [pictures, texts] = [some(images, isImage), some(files, isFile)];
        const parts = some(steps, isStep)?.map((s) => ({ ...s, thought: text(s.thought), calls: s.calls.map(finished) }));
        if (parts) message.steps = parts;
        if (pictures) message.images = pictures;
        if (texts) message.files = texts.map(({ name, text }) => ({ name, text }));
        return [id, message];
      }),
    ),
    leaf: talk.leaf ?? null,
    changed: Number(talk.changed) || 0,
  };
}
