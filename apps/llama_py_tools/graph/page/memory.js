// The compute buffer over time: across, the nodes as they run; upwards, bytes of the buffer.
import { h, styleOf } from "./dom.js";
import { bytes, count, hex } from "./format.js";

const EDGE = { left: 70, right: 14, top: 8, bottom: 20 };

/** The number of the node that runs at a time; nodes may run in another order than their own. */
export const nodeAt = (memory, time) => memory.order?.[time] ?? time;

export class MemoryChart {
  constructor(app, element) {
    Object.assign(this, { app, element, number: 0, near: false });
    this.canvas = h("canvas", { tabindex: "0", role: "img", mousemove: (e) => this._hover(e), mouseleave: () => this._tell(null),
      click: (e) => this._click(e) });
    this.note = h("span", { class: "note" });
    new ResizeObserver(() => this.paint()).observe(this.canvas);
  }

  get memory() { return this.app.graph.data.memory[this.number]; }

  _node(time) { return nodeAt(this.memory, time); }

  /** When a node runs. */
  _time(node) { return this.memory.order?.indexOf(node) ?? node; }

  draw() {
    const all = this.app.graph.data.memory;
    this.element.hidden = !all.length;
    if (!all.length) return;
    this.number = Math.min(this.number, all.length - 1);
    const m = this.memory;
    m.top = Math.max(m.peak, ...m.places.map(([, , , offset, size]) => offset + size));
    const choose = all.length < 2 ? null : h("select", { "aria-label": "Buffer", title: "Buffer", change: (e) => { this.number = Number(e.target.value); this.draw(); } },
      all.map((each, i) => h("option", { value: i, selected: i === this.number }, named(each, i))));
    const peak = h("button", { class: "peak", click: () => this.app.reveal(this._node(m.peak_at)) }, `peak ${bytes(m.peak)} in use at node ${count(this._node(m.peak_at))}`);
    const near = h("button", { class: "near", "aria-pressed": String(this.near), click: () => { this.near = !this.near; this.draw(); } },
      this.near ? "Whole graph" : "Layer only");
    near.hidden = !this.near && !this._layer();
    this.button = near;
    this.canvas.setAttribute("aria-label", `${bytes(m.size)} of buffer; at most ${bytes(m.peak)} at once, at node ${this._node(m.peak_at)}`);
    this.element.replaceChildren(
      h("header", {}, h("h2", {}, "Compute buffer"), choose, h("span", { class: "size" }, `${bytes(m.top)} taken of ${bytes(m.size)}`), peak, near, this.note), this.canvas);
    this._tell(null);
    this.paint();
  }

  /** The layer of what is selected. */
  _layer() {
    const { app } = this;
    if (app.selected === null || app.selected < 0) return null;
    return app.graph.path(app.selected).find((part) => part.kind === "layer") ?? app.graph.blockOf[app.selected];
  }

  /** Nodes that are shown: [first, number]. */
  _range() {
    const layer = this.near && this._layer();
    return layer ? [layer.first, layer.nodes.length] : [0, this.memory.alive.length];
  }

  paint() {
    const m = this.memory, { canvas } = this, { clientWidth, clientHeight } = canvas;
    if (!m || !clientWidth) return;
    const ratio = window.devicePixelRatio || 1, c = canvas.getContext("2d");
    canvas.width = clientWidth * ratio;
    canvas.height = clientHeight * ratio;
    c.scale(ratio, ratio);
    if (this.button) this.button.hidden = !this.near && !this._layer();
    const [begin, n] = this._range(), width = clientWidth - EDGE.left - EDGE.right, height = clientHeight - EDGE.top - EDGE.bottom;
    const x = (i) => EDGE.left + (Math.min(n, Math.max(0, i - begin)) / n) * width, y = (b) => EDGE.top + height - (b / (m.top || 1)) * height;
    this.scale = { x, y, i: (px) => begin + Math.floor(((px - EDGE.left) / width) * n), b: (py) => ((EDGE.top + height - py) / height) * m.top };
    this._axes(c, m, x, y, clientWidth);
    const probe = h("i", { hidden: true });
    document.body.append(probe);
    for (const [ref, first, last, offset, size] of m.places) {
      if (last < begin || first >= begin + n) continue;
      c.fillStyle = this._colour(probe, ref);
      const w = Math.max(1, x(last + 1) - x(first) - 0.5), tall = y(offset) - y(offset + size);
      c.fillRect(x(first), y(offset + size), w, Math.max(0.75, tall - 0.5));
    }
    probe.remove();
    this._curve(c, m, x, y);
  }

  /** The colour of a place's node, as the canvas understands it. */
  _colour(probe, ref) {
    if (ref === null || ref === undefined || ref < 0) return styleOf("--quiet");
    probe.style.color = this.app.colouring.of(this.app.graph.nodes[ref]).colour;
    return getComputedStyle(probe).color;
  }

  _axes(c, m, x, y, right) {
    c.font = `11px ${styleOf("--sans")}`;
    c.textBaseline = "middle";
    for (const part of [0, 0.5, 1]) {
      c.fillStyle = styleOf("--line");
      c.fillRect(EDGE.left, Math.round(y(m.top * part)), right - EDGE.left - EDGE.right, 1);
      c.fillStyle = styleOf("--faint");
      c.textAlign = "right";
      c.fillText(part ? bytes(m.top * part) : "0", EDGE.left - 8, y(m.top * part));
    }
    c.textAlign = "center";
    const [begin, n] = this._range(), room = 3 * c.measureText(count(begin + n)).width;
    const step = niceStep(Math.max(n / 10, (n * room) / (right - EDGE.left - EDGE.right)));
    for (let i = Math.ceil(begin / step) * step; i < begin + n; i += step) c.fillText(count(i), x(i), y(0) + 12);
  }

  _curve(c, m, x, y) {
    c.strokeStyle = styleOf("--ink");
    c.lineWidth = 1.25;
    c.beginPath();
    const [begin, n] = this._range(), shown = (i) => i >= begin && i < begin + n;
    m.alive.forEach((b, i) => { if (shown(i)) { c.lineTo(x(i), y(b)); c.lineTo(x(i + 1), y(b)); } });
    c.stroke();
    const { selected } = this.app;
    if (selected !== null && selected >= 0) {
      c.fillStyle = styleOf("--accent");
      const at = this._time(selected);
      c.fillRect(x(at), EDGE.top, Math.max(1.5, x(at + 1) - x(at)), y(0) - EDGE.top);
    }
    if (!shown(m.peak_at)) return;
    c.fillStyle = styleOf("--hot");
    c.beginPath();
    c.arc(x(m.peak_at + 0.5), y(m.peak), 3.5, 0, 7);
    c.fill();
  }

  _at(event) {
    const box = this.canvas.getBoundingClientRect();
    const i = this.scale.i(event.clientX - box.left), b = this.scale.b(event.clientY - box.top);
    if (i < 0 || i >= this.memory.alive.length) return null;
    const place = this.memory.places.find(([, first, last, offset, size]) => i >= first && i <= last && b >= offset && b < offset + size);
    return { i, place };
  }

  _hover(event) { this._tell(this._at(event)); }

  _tell(found) {
    if (!found) {
      this.note.textContent = "bar: a result, from its node to its last reader; line: bytes in use";
      return;
    }
    const { i, place } = found, { graph } = this.app, node = this._node(i);
    const here = `node ${count(node)} ${graph.nodes[node].name}: ${bytes(this.memory.alive[i])} in use`;
    if (!place) this.note.textContent = here;
    else this.note.textContent = `${here} · ${graph.at(place[0])?.name ?? "scratch"}: ${bytes(place[4])} at ${hex(place[3])}, nodes ${count(this._node(place[1]))} to ${count(this._node(place[2]))}`;
  }

  _click(event) {
    const found = this._at(event);
    if (found) this.app.reveal(found.place && found.place[0] >= 0 ? found.place[0] : this._node(found.i));
  }
}

/** A buffer's device and its contents. */
const named = ({ device, kind }, i) => (device ? `${device} ${kind}` : `buffer ${i}`);

function niceStep(least) {
  for (let size = 1; ; size *= 10) for (const n of [1, 2, 5]) if (n * size >= least) return n * size;
}
