// What is selected, in words and numbers.
import { h } from "./dom.js";
import { bytes, count, hex, percent, plural, shape, short, time } from "./format.js";

const KINDS = { weight: "weight of the model", input: "input, set before each run", memory: "memory of the context" };

export class Details {
  constructor(app, element) { Object.assign(this, { app, element }); }

  draw() {
    const { selected } = this.app;
    this.element.replaceChildren(...(selected === null ? this._hint() : selected >= 0 ? this._node(selected) : this._leaf(selected)));
    this.element.scrollTop = 0;
  }

  _hint() {
    const key = (name, what) => h("li", {}, h("kbd", {}, name), ` ${what}`);
    return [
      h("h2", {}, "How to read this"),
      h("p", {}, "Data flows from top to bottom. Click a layer to unfold it, a node to see its shape, memory, sources and consumers."),
      h("p", {}, "Layers of the same structure are shown once: ", h("b", {}, "12 ×"), " stands for twelve, ‹ and › go through them."),
      h("ul", { class: "keys" }, key("↑ ↓", "go to the next box"), key("→ ←", "unfold, fold"), key("Enter", "select"),
        key("/", "search"), key("Esc", "deselect"), key("+ −", "zoom")),
    ];
  }

  _node(i) {
    const { graph, ops } = this.app, node = graph.nodes[i];
    return [
      h("p", { class: "path" }, this._path(i)),
      h("h2", {}, node.name),
      h("p", { class: "tag", style: { "--c": this.app.colouring.of(node).colour } }, node.op),
      h("p", { class: "meaning" }, ops[node.op].meaning),
      table([
        ["node", count(i)], ...tensorRows(node), ...Object.entries(node.params).map(([k, v]) => [k, String(v)]),
        ["device", node.device], ["comes from", node.between ? node.between.join(", ") : null], ...this._memory(i), ...this._time(i), ...overlayRows(node),
        ["", node.idle ? "not computed in this run" : null], ["", node.output ? "an output: kept to the end" : null],
      ]),
      ...this._list("Reads", node.src.map((s, k) => [s, (node.copied || []).includes(k) ? "copied to this device" : ""]).filter(([s]) => s !== null)),
      ...this._list("Read by", graph.usersOf(i).map((user) => [user, ""])),
    ];
  }

  _leaf(ref) {
    const leaf = this.app.graph.at(ref);
    return [
      h("h2", {}, leaf.name), h("p", { class: "tag leaf" }, KINDS[leaf.kind]),
      table([...tensorRows(leaf), ["layout", leaf.layout]]),
      ...this._list("Read by", this.app.graph.usersOf(ref).map((user) => [user, ""])),
    ];
  }

  _path(i) {
    const names = this.app.graph.path(i).filter((part) => part.title && part.kind !== "repeat").map((part) => part.title);
    return names.join(" › ");
  }

  _memory(i) {
    const { graph } = this.app, node = graph.nodes[i];
    const rows = [];
    if (node.step !== undefined && node.step !== i) {
      rows.push(["runs in", this._link(node.step, "the step that ends with ")]);
    }
    if (node.root !== undefined) {
      rows.push(["looks at", node.root === null ? "another tensor" : this._link(node.root)], ["from byte", count(node.offs)]);
      return rows;
    }
    if (node.at === undefined) {
      if (node.step !== undefined) rows.push(["memory", "none: the value stays within its step"]);
      return rows;
    }
    const place = this.app.placeOf(i);
    rows.push(["buffer offset", `${count(node.at)} (${hex(node.at)})`]);
    if (place) rows.push(["in memory", place[1] === place[2] ? `at node ${count(place[1])} only` : `nodes ${count(place[1])} to ${count(place[2])}`]);
    return rows;
  }

  _time(i) {
    const { graph } = this.app, node = graph.nodes[i];
    if (node.us === undefined) return [];
    return [["time", `${time(node.us)}, ${percent(node.us / graph.seconds)} of all`], ["kernel", (node.kernels || []).join(", ") || null]];
  }

  _link(ref, before = "") {
    const name = this.app.graph.at(ref).name;
    return h("span", {}, before, h("a", { href: this.app.hash(ref) }, name));
  }

  _list(title, refs) {
    if (!refs.length) return [];
    return [
      h("h3", {}, `${title} `, h("small", {}, plural(refs.length, "tensor"))),
      h("ul", { class: "links" }, refs.map(([ref, note]) => {
        const t = this.app.graph.at(ref);
        return h("li", { class: ref < 0 ? t.kind : "" }, h("a", { href: this.app.hash(ref) }, t.name),
          h("span", { class: "what" }, [ref < 0 ? "" : t.op, `${shape(t.ne)} ${t.type}`, note].filter(Boolean).join(" · ")));
      })),
    ];
  }
}

function tensorRows(t) {
  return [["shape", shape(t.ne)], ["type", t.type], ["strides", `[${t.nb.map(count).join(", ")}] bytes`],
    ["size", t.bytes >= 1024 ? `${bytes(t.bytes)} (${count(t.bytes)} bytes)` : plural(t.bytes, "byte")]];
}

const overlayRows = (node) => Object.entries(node.overlay || {}).map(([name, v]) => [name, typeof v === "number" ? short(v) : v]);

/** Rows without a value are left out. */
function table(rows) {
  return h("dl", {}, rows.filter(([, value]) => value !== null && value !== undefined && value !== "")
    .map(([key, value]) => [h("dt", {}, key), h("dd", {}, value)]));
}
