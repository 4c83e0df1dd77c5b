// The graph on the screen: boxes in boxes, and lines between them. Blocks get their nodes when they come near.
import { h, svg } from "./dom.js";
import { nodeCard, partCard, partHead, partStyle, portCard } from "./cards.js";

const NEAR = 1200; // pixels around what is seen

export class Boxes {
  constructor(app, canvas, pane) {
    Object.assign(this, { app, canvas, pane, waiting: new Map() });
    this.observer = new IntersectionObserver((entries) => entries.forEach((entry) => this._seen(entry)),
      { root: pane, rootMargin: `${NEAR}px` });
  }

  /** Build everything anew. */
  draw() {
    this.observer.disconnect();
    this.waiting.clear();
    const { root } = this.app.graph, size = this.app.layout.measure(root);
    this.canvas.replaceChildren(...this._inside(root, size.inside));
    this.canvas.style.width = `${size.width}px`;
    this.canvas.style.height = `${size.height}px`;
    this.size = size;
  }

  /** Have the nodes of a block on the screen now. */
  fill(part) {
    const body = this.canvas.querySelector(`[data-body="${part.id}"]`);
    if (body && this.waiting.has(body)) this._fill(body);
  }

  /** Mark what is selected, and the lines to it and from it. */
  mark() {
    const { selected } = this.app;
    for (const element of this.canvas.querySelectorAll(".selected, .hot")) element.classList.remove("selected", "hot");
    if (selected === null) return;
    const chosen = selected >= 0 ? `[data-node="${selected}"], [data-port="${selected}"]` : `[data-leaf="${selected}"]`;
    for (const element of this.canvas.querySelectorAll(chosen)) element.classList.add("selected");
    for (const line of this.canvas.querySelectorAll(`path[data-from="${selected}"], path[data-to="${selected}"]`)) {
      line.classList.add("hot");
      line.parentNode.append(line);
    }
  }

  _inside(part, inside) {
    const children = inside.items.map((item) => (item.part.open ? this._box(item) : partCard(this.app, item.part, item)));
    return [lines(inside), ...children];
  }

  _box({ part, size, x, y }) {
    const body = h("div", { class: "body", "data-body": part.id, style: {
      left: `${size.x}px`, top: `${size.y}px`, width: `${size.inside.width}px`, height: `${size.inside.height}px` } });
    const box = h("section", { class: `box ${part.kind}`, "data-part": part.id, "aria-label": part.title, style: {
      left: `${x}px`, top: `${y}px`, width: `${size.width}px`, height: `${size.height}px`, ...partStyle(this.app, part) } },
      partHead(this.app, part), body);
    if (part.leaf) {
      this.waiting.set(body, { part, inside: size.inside, full: false });
      this.observer.observe(body);
    } else {
      body.append(...this._inside(part, size.inside));
    }
    return box;
  }

  _seen({ target, isIntersecting }) {
    const known = this.waiting.get(target);
    if (!known) return;
    if (isIntersecting) this._fill(target);
    else if (known.full && !target.contains(document.activeElement)) {
      target.replaceChildren();
      known.full = false;
    }
  }

  _fill(body) {
    const known = this.waiting.get(body);
    if (known.full) return;
    known.full = true;
    const cards = known.inside.items.map((item) => (item.port ? portCard : nodeCard)(this.app, item.node, item));
    body.replaceChildren(lines(known.inside), ...cards);
    this.mark();
  }
}

/** The lines of a part, behind its boxes. */
function lines({ width, height, edges }) {
  const paths = edges.map(({ from, to, points }) => svg("path", {
    d: curve(points), "data-from": from, "data-to": to, class: to === "out" ? "line end" : "line" }));
  return svg("svg", { class: "lines", width: Math.max(1, width), height: Math.max(1, height), "aria-hidden": "true" }, ...paths);
}

/** A smooth line through points. */
function curve(points) {
  const p = points.map(({ x, y }) => [Math.round(x * 10) / 10, Math.round(y * 10) / 10]);
  let d = `M${p[0]}`;
  for (let i = 1; i < p.length - 1; i++) {
    const middle = i < p.length - 2 ? [(p[i][0] + p[i + 1][0]) / 2, (p[i][1] + p[i + 1][1]) / 2] : p[i + 1];
    d += `Q${p[i]} ${middle}`;
  }
  return p.length === 2 ? `${d}L${p[1]}` : d;
}
