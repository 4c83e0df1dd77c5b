// What is known of the model, what colours mean, and all layers at a glance.
import { h } from "./dom.js";
import { heat } from "./colours.js";
import { count, plural } from "./format.js";

export class Overview {
  constructor(app, element) { Object.assign(this, { app, element }); }

  draw() {
    const { app } = this;
    this.element.replaceChildren(
      h("section", { id: "legend", "aria-label": "Legend" }, h("h2", {}, app.colouring.label), this._legend()),
      ...(app.graph.layers.length > 1 ? [h("section", { id: "layers", "aria-label": "Layers" }, h("h2", {}, "Layers"), this._layers())] : []),
      h("section", { id: "facts", "aria-label": "Model" }, h("h2", {}, "Model"), this._facts()),
    );
  }

  _legend() {
    const { colouring } = this.app;
    if (!colouring.numeric) {
      return h("ul", { class: "legend" }, colouring.legend.map(({ label, colour, note }) =>
        h("li", {}, h("i", { style: { background: colour } }), h("span", {}, label), h("small", {}, note))));
    }
    const stops = [0, 0.25, 0.5, 0.75, 1].map((t) => heat(t)).join(", ");
    return h("div", { class: "scale" },
      h("div", { class: "ramp", style: { background: `linear-gradient(to right, ${stops})` } }),
      h("div", { class: "ticks" }, colouring.scale.map((text) => h("span", {}, text))),
      h("ul", { class: "legend" },
        colouring.bad ? h("li", {}, h("i", { style: { background: "var(--bad)" } }), h("span", {}, "not a finite number")) : null,
        colouring.missing ? h("li", {}, h("i", { style: { background: "var(--quiet)" } }), h("span", {}, "no value")) : null));
  }

  /** A square a layer: its value, the mix of its nodes, or what kind of layer it is. */
  _layers() {
    const { app } = this, { graph, colouring } = app;
    const paint = (part) => {
      if (colouring.numeric) return colouring.ofPart(part.nodes).colour;
      return colouring.key === "op" ? app.colourOfPart(part) : mixed(colouring.mix(part.nodes));
    };
    const squares = h("div", { class: "squares" }, graph.layers.map((part) => {
      const style = { background: paint(part) };
      const note = colouring.note(part.nodes);
      return h("button", { style, title: `layer ${part.number}: ${part.words}${note && ` · ${note}`}`, "data-layer": part.number,
        "aria-label": `layer ${part.number}`, click: () => app.goTo(part) });
    }));
    if (colouring.key !== "op") return squares;
    return [squares, h("ul", { class: "legend" }, app.kinds.map(({ words, colour, number }) =>
      h("li", {}, h("i", { style: { background: colour } }), h("span", {}, words), h("small", {}, count(number)))))];
  }

  _facts() {
    const { app } = this, { graph } = app;
    const rows = [...app.data.facts, ["this graph", `${plural(graph.computed(graph.nodes.map((_, i) => i)).length, "node")}, ${count(graph.nodes.length)} with views`]];
    return h("dl", {}, rows.map(([key, value]) => [h("dt", {}, key), h("dd", {}, value)]));
  }
}

/** The shares of a mix from top to bottom. */
function mixed(mix) {
  let at = 0;
  const stops = mix.flatMap(([colour, share]) => {
    const from = at;
    at += share * 100;
    return [`${colour} ${from}%`, `${colour} ${at}%`];
  });
  return `linear-gradient(to bottom, ${stops.join(", ")})`;
}
