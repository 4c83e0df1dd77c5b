import { setKey } from "../server.ts";
import { connect } from "../chat.ts";
import { FIELDS, read, type Field } from "../settings.ts";
import { needsKey, put, settings, talk } from "../store.ts";

/** System prompt of this conversation, sampling of all. */
export function Settings() {
  const shown = talk.value;
  if (!shown) return null;
  return (
    <aside class="settings" aria-label="Settings">
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
      <button type="button" onClick={() => (settings.value = {})}>The server's defaults</button>
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
        This server asks for an API key
        <input type="password" name="key" autocomplete="off" required />
      </label>
      <label class="keep">
        <input type="checkbox" name="keep" defaultChecked />
        Keep it in this browser
      </label>
      <button type="submit">Go on</button>
    </form>
  );
}
