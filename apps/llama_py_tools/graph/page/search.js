// A box that finds nodes, leafs and layers by name, and by op.
import { h } from "./dom.js";
import { count } from "./format.js";

const MOST = 40;

export class Search {
  constructor(app, input, list) {
    Object.assign(this, { app, input, list, found: [], chosen: -1 });
    input.addEventListener("input", () => this._look());
    input.addEventListener("keydown", (e) => this._key(e));
    input.addEventListener("focus", () => { if (input.value) this._look(); });
    // a click on the list comes first; whoever is back in the box by then goes on searching
    input.addEventListener("blur", () => setTimeout(() => document.activeElement !== input && this._close(), 150));
  }

  _look() {
    const words = this.input.value.toLowerCase().split(/\s+/).filter(Boolean);
    const { graph } = this.app;
    const fits = (t) => { const text = `${t.name} ${t.op || t.kind}`.toLowerCase(); return words.every((w) => text.includes(w)); };
    const refs = words.length ? [...graph.nodes.keys(), ...[...graph.leafs.keys()].map((i) => -1 - i)] : [];
    const all = refs.filter((ref) => fits(graph.at(ref)));
    const exact = (ref) => (graph.at(ref).name.toLowerCase() === words.join(" ") ? 0 : graph.at(ref).view ? 2 : 1);
    this.found = all.sort((a, b) => exact(a) - exact(b)).slice(0, MOST);
    this.chosen = this.found.length ? 0 : -1;
    this.list.replaceChildren(...this.found.map((ref, k) => this._line(ref, k)),
      ...(all.length > MOST ? [h("li", { class: "more" }, `${count(all.length - MOST)} more`)] : []),
      ...(words.length && !all.length ? [h("li", { class: "more" }, "No name matches. Try a part of the name.")] : []));
    this.list.hidden = !words.length;
    this.input.setAttribute("aria-expanded", String(!this.list.hidden));
    this._mark();
  }

  _line(ref, k) {
    const t = this.app.graph.at(ref);
    const where = ref < 0 ? t.kind : `${t.op} · ${this.app.graph.path(ref).filter((p) => p.kind !== "repeat").map((p) => p.title).join(" › ")}`;
    return h("li", { id: `found-${k}`, role: "option", mousedown: (e) => { e.preventDefault(); this._go(k); } },
      h("span", { class: "name" }, t.name), h("span", { class: "what" }, where));
  }

  _key(event) {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step && this.found.length) {
      this.chosen = (this.chosen + step + this.found.length) % this.found.length;
      this._mark();
    } else if (event.key === "Enter" && this.chosen >= 0) this._go(this.chosen);
    else if (event.key === "Escape") { this.input.value = ""; this._close(); this.input.blur(); }
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  _mark() {
    [...this.list.children].forEach((line, k) => {
      line.setAttribute("aria-selected", String(k === this.chosen));
      if (k === this.chosen) line.scrollIntoView({ block: "nearest" });
    });
    if (this.chosen >= 0) this.input.setAttribute("aria-activedescendant", `found-${this.chosen}`);
    else this.input.removeAttribute("aria-activedescendant");
  }

  _go(k) {
    const ref = this.found[k];
    this._close();
    this.input.blur();
    this.app.reveal(ref >= 0 ? ref : this.app.graph.usersOf(ref)[0] ?? null, ref);
  }

  _close() {
    this.list.hidden = true;
    this.input.setAttribute("aria-expanded", "false");
  }
}
