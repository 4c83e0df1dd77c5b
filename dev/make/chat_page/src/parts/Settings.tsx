import { useState } from "preact/hooks";
import { connect } from "../chat.ts";
import { keepsKey, setKey } from "../server.ts";
import { FIELDS, read, type Field } from "../settings.ts";
import { keyIsWrong, needsKey, panel, put, settings, talk, toolbox, usesTools } from "../store.ts";
import { IconButton } from "./icons.tsx";

/** System prompt of this conversation, sampling of all. */
export function Settings() {
  const shown = talk.value;
  if (!shown) return null;
  return (
    <aside class="settings" aria-label="Settings">
      <div class="top">
        <h2>Settings</h2>
        <IconButton of="close" label="Close" onClick={() => (panel.value = "")} />
      </div>
      <label>
        System prompt
        <textarea
          name="system"
          rows={5}
          placeholder="none"
          value={shown.system}
          onInput={(e) => put({ ...shown, system: e.currentTarget.value })}
        />
      </label>
      {FIELDS.map((field) => (
        <Setting key={field.key} field={field} />
      ))}
      <Tools />
      <button type="button" onClick={() => (settings.value = {})}>Reset settings</button>
      <Forget />
    </aside>
  );
}

function Setting({ field }: { field: Field }) {
  const set = (text: string) => {
    const { [field.key]: _old, ...rest } = settings.value;
    const value = read(field, text);
    settings.value = value === null ? rest : { ...rest, [field.key]: value };
  };
  return (
    <label title={field.about}>
      {field.label}
      <input
        type="number"
        name={field.key}
        min={field.min}
        max={field.max}
        step={field.step}
        placeholder="default"
        value={settings.value[field.key] ?? ""}
        onChange={(e) => set(e.currentTarget.value)}
      />
      <small>{field.about}</small>
    </label>
  );
}

/** The server's tools; each call is a question first. */
function Tools() {
  const { tools } = toolbox.value;
  if (!tools.length) return null;
  return (
    <details class="tools">
      <summary>
        <label>
          Use {tools.length} tools
          <input type="checkbox" name="tools" checked={usesTools.value} onChange={(e) => (usesTools.value = e.currentTarget.checked)} />
        </label>
      </summary>
      <dl>
        {tools.map(({ function: { name, description } }) => [<dt key={name}>{name}</dt>, <dd>{description}</dd>])}
      </dl>
    </details>
  );
}

function Forget() {
  const [kept, setKept] = useState(keepsKey());
  if (!kept) return null;
  return <button type="button" onClick={() => (setKey("", false), setKept(false), void connect())}>Forget API key</button>;
}

/** Asked for when the server wants one. */
export function Key() {
  if (!needsKey.value) return null;
  return (
    <form
      class="key"
      onSubmit={(e) => {
        e.preventDefault();
        const given = new FormData(e.currentTarget);
        setKey(String(given.get("key") ?? ""), given.has("keep"));
        void connect();
      }}
    >
      <label>
        {keyIsWrong.value ? "The server does not accept this API key. Enter another one." : "The server requires an API key."}
        <input type="password" name="key" autocomplete="off" required />
      </label>
      <label class="keep">
        <input type="checkbox" name="keep" defaultChecked />
        Keep the key in this browser
      </label>
      <button type="submit">Connect</button>
    </form>
  );
}
