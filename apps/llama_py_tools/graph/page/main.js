// The page: its state, and what happens when something is chosen.
import { byId, h } from "./dom.js";
import { Graph } from "./model.js";
import { colourings, layerKinds } from "./colours.js";
import { Layout } from "./layout.js";
import { Boxes } from "./boxes.js";
import { Details } from "./details.js";
import { Overview } from "./overview.js";
import { MemoryChart, nodeAt } from "./memory.js";
import { Search } from "./search.js";
import { listen } from "./keys.js";

const narrow = matchMedia("(max-width: 700px)"); // as in page.css

class App {
  constructor(data) {
    Object.assign(this, { data, ops: data.ops, selected: null, views: false, graphs: [], layouts: new Map(), zoom: 1 });
    this.pane = byId("pane");
    this.canvas = byId("canvas");
    this.boxes = new Boxes(this, this.canvas, this.pane);
    this.details = new Details(this, byId("details"));
    this.overview = new Overview(this, byId("overview"));
    this.memory = new MemoryChart(this, byId("memory"));
    byId("title").textContent = data.title;
    this._controls();
    new Search(this, byId("search"), byId("found"));
    listen(this, { canvas: this.canvas, pane: this.pane, search: byId("search") });
    addEventListener("hashchange", () => this._follow());
    this.setGraph(0);
    this._follow();
  }

  get layout() {
    const key = `${this.graph.number} ${this.views}`;
    if (!this.layouts.has(key)) this.layouts.set(key, new Layout(this.graph, this.views));
    return this.layouts.get(key);
  }

  setGraph(number) {
    this.graph = this.graphs[number] ||= new Graph(this.data.graphs[number], number);
    this.selected = null;
    byId("graph").value = number;
    this.kinds = layerKinds(this.graph);
    const all = this.colourings = colourings(this.graph, this.ops);
    byId("colour").replaceChildren(...[...all].map(([key, { label }]) => h("option", { value: key }, label)));
    const first = [...all.keys()].find((key) => key.startsWith("overlay:")) || (all.has("time") ? "time" : "op");
    this.setColour(all.has(this.colouring?.key) ? this.colouring.key : first);
    this.fit();
  }

  setColour(key) {
    this.colouring = this.colourings.get(key);
    byId("colour").value = key;
    this.draw();
    this.overview.draw();
    this.details.draw();
    this.memory.draw();
  }

  draw() {
    this.boxes.draw();
    this.boxes.mark();
  }

  toggle(part) {
    this._keeping(part, () => { part.open = !part.open; });
    if (part.open) this._fitWidth(part);
  }

  turn(part, turn) { this._keeping(part, () => { part.turn = turn; }); }

  showAll(part) { this._keeping(part, () => { part.all = !part.all; }); }

  /** Fold or unfold everything. */
  all(open) {
    for (const part of this.graph.parts) {
      if (part.kind === "root") continue;
      part.open = open || part.kind === "repeat";
      part.all = open && part.kind === "repeat";
    }
    this.draw();
  }

  /** Select a node, or a leaf by its negative number. */
  select(ref) {
    this.selected = ref;
    const hash = ref === null ? "#" : this.hash(ref);
    if (location.hash !== hash) history.replaceState(null, "", hash);
    if (ref !== null && narrow.matches) this.showPanel("details");
    this.boxes.mark();
    this.details.draw();
    this.memory.paint();
  }

  /** In a small window one panel is shown, or none (page.css). */
  showPanel(which) {
    document.body.dataset.panel = which;
    for (const button of byId("panels").children) button.setAttribute("aria-expanded", String(button.dataset.panel === which));
  }

  /** Unfold to a node, bring it into view and select it, or `ref` that it reads. */
  reveal(i, ref = i) {
    if (i === null) { this.select(ref); return; }
    if (this.graph.nodes[i].quiet && !this.views) {
      this.views = true;
      byId("views").checked = true;
    }
    this.graph.unfoldTo(i);
    this.draw();
    this._fitWidth(this.graph.blockOf[i]);
    this.boxes.fill(this.graph.blockOf[i]);
    this.select(ref);
    const card = this.canvas.querySelector(`[data-node="${i}"]`);
    card.scrollIntoView({ block: "center", inline: "center" });
    card.querySelector(".face").focus({ preventScroll: true });
  }

  /** Bring a layer into view, as it is. */
  goTo(part) {
    this.graph.unfoldTo(part.first);
    if (part.leaf) part.open = false;
    part.children.forEach((child) => { child.open = false; });
    this.draw();
    const box = this.canvas.querySelector(`[data-part="${part.id}"]`);
    box.scrollIntoView({ block: "center", inline: "center" });
    box.querySelector("button").focus({ preventScroll: true });
  }

  hash(ref) { return `#g${this.graph.number}${ref >= 0 ? `n${ref}` : `l${-1 - ref}`}`; }

  /** [ref, first, last, offset, size] of a node's place in a compute buffer, first and last node. */
  placeOf(i) {
    for (const m of this.graph.data.memory) {
      const place = m.places.find(([ref]) => ref === i);
      if (!place) continue;
      const [ref, first, last, ...where] = place;
      return [ref, nodeAt(m, first), nodeAt(m, last), ...where];
    }
    return null;
  }

  /** Of a layer the colour of its kind, where kinds of ops are shown; else that of most of its nodes. */
  colourOfPart(part) {
    if (this.colouring.key !== "op") {
      const [most] = this.colouring.mix(part.nodes).sort((a, b) => b[1] - a[1]);
      if (most) return most[0];
    }
    return this.kinds.find(({ words }) => part.kind === "layer" && words === part.words)?.colour ?? "var(--accent)";
  }

  /** Bytes of the weights that a part's nodes read. */
  weightBytes(part) {
    if (part.weights === undefined) {
      const found = new Set(part.nodes.flatMap((i) => this.graph.leafsOf(i, false)));
      part.weights = [...found].map((ref) => this.graph.at(ref)).filter((t) => t.kind === "weight")
        .reduce((sum, t) => sum + t.bytes, 0);
    }
    return part.weights;
  }

  zoomBy(factor) { this._setZoom(this.zoom * factor); }

  /** As large as the whole fits, within what can be read. */
  fit() {
    const { clientWidth, clientHeight } = this.pane, { width, height } = this.boxes.size;
    const space = 2 * parseFloat(getComputedStyle(this.pane).paddingLeft);
    const fits = Math.min((clientWidth - space) / width, (clientHeight - space) / height);
    this._setZoom(Math.min(1.6, Math.max(0.75, fits)));
    this.pane.scrollTop = 0;
    this.pane.scrollLeft = (this.pane.scrollWidth - clientWidth) / 2;
  }

  /** Zoom out until a part is as wide as can be seen, within what can be read, and put it in the middle. */
  _fitWidth(part) {
    const box = this.canvas.querySelector(`[data-part="${part.id}"]`);
    const fits = Math.max(0.85, (this.pane.clientWidth - 24) / parseFloat(box.style.width));
    if (fits < this.zoom) this._keeping(part, () => this._setZoom(fits));
    this.canvas.querySelector(`[data-part="${part.id}"]`).scrollIntoView({ block: "nearest", inline: "center" });
  }

  _setZoom(zoom) {
    this.zoom = Math.min(3, Math.max(0.15, zoom));
    this.canvas.style.zoom = this.zoom;
    byId("fit").textContent = `${Math.round(this.zoom * 100)} %`;
  }

  /** Draw anew after a change, and leave the head of a part where it is on the screen. */
  _keeping(part, change) {
    const find = () => this.canvas.querySelector(`[data-part="${part.id}"]`);
    const before = find()?.getBoundingClientRect();
    const focused = this.canvas.contains(document.activeElement);
    const which = document.activeElement?.className;
    change();
    this.draw();
    const element = find(), after = element?.getBoundingClientRect();
    if (before && after) {
      this.pane.scrollTop += after.top - before.top;
      this.pane.scrollLeft += after.left + after.width / 2 - before.left - before.width / 2;
    }
    if (focused) {
      const same = ["back", "next", "all"].includes(which) ? element?.querySelector(`.${which}`) : null;
      (same || element?.querySelector(".fold"))?.focus({ preventScroll: true });
    }
  }

  _follow() {
    const found = /^#g(\d+)([nl])(\d+)$/.exec(location.hash);
    if (!found || Number(found[1]) >= this.data.graphs.length) return;
    if (Number(found[1]) !== this.graph.number) this.setGraph(Number(found[1]));
    const number = Number(found[3]), { nodes, leafs } = this.graph;
    if (found[2] === "n" && number < nodes.length) this.reveal(number);
    else if (found[2] === "l" && number < leafs.length) this.select(-1 - number);
  }

  _controls() {
    const graphs = byId("graph");
    graphs.append(...this.data.graphs.map(({ what }, i) => h("option", { value: i }, what)));
    byId("choose-graph").hidden = this.data.graphs.length < 2;
    const on = (id, event, action) => byId(id).addEventListener(event, action);
    on("graph", "change", () => this.setGraph(Number(graphs.value)));
    on("colour", "change", (e) => this.setColour(e.target.value));
    on("views", "change", (e) => { this.views = e.target.checked; this.draw(); });
    on("fold-all", "click", () => this.all(false));
    on("unfold-all", "click", () => this.all(true));
    on("smaller", "click", () => this.zoomBy(1 / 1.2));
    on("larger", "click", () => this.zoomBy(1.2));
    on("fit", "click", () => this.fit());
    on("theme", "click", () => this._turnTheme());
    on("panels", "click", ({ target: { dataset: { panel } } }) => panel && this.showPanel(document.body.dataset.panel === panel ? "" : panel));
    this.showPanel("");
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.memory.paint());
  }

  _turnTheme() {
    const root = document.documentElement;
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
    this.memory.paint();
  }
}

new App(JSON.parse(byId("data").textContent));
