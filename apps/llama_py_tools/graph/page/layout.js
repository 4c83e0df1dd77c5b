// Where things are. dagre arranges the children of each unfolded part by itself, in boxes that know only their size;
// so what is folded costs nothing, and blocks of the same structure are arranged once.
/* global dagre */

export const NODE = { width: 240, height: 46, chip: 20, view: 26 };
export const CARD = { width: 320, height: 66 };
const REPEAT = 390; // its head has more in it
const PORT = { width: 190, height: 22 };
const END = { width: 1, height: 1 };
const BOX = { side: 22, head: 36, space: 14 };
const GAP = { nodesep: 20, ranksep: 28, edgesep: 10, marginx: 0, marginy: 0 };

export class Layout {
  /** Of a graph; views: whether nodes that only look at others are shown. */
  constructor(graph, views) {
    Object.assign(this, { graph, views });
    this.arranged = new Map();
    this.edges = graph.nodes.flatMap((node, i) => (views || !node.quiet ? [...this.sources(i)].map((s) => [s, i]) : []));
  }

  /** Nodes of a block that are shown. */
  shown(part) {
    return part.nodes.filter((i) => this.views || !this.graph.nodes[i].quiet);
  }

  /** The size of a part as it is, folded or not: {width, height, inside}. */
  measure(part) {
    if (!part.open) return { ...CARD, inside: null };
    const inside = part.leaf ? this._block(part) : this._container(part);
    if (part.kind === "root") return { width: inside.width, height: inside.height, inside };
    const width = Math.max(inside.width, part.kind === "repeat" ? REPEAT : CARD.width) + 2 * BOX.side;
    const above = BOX.head + (inside.at.has("in") ? 0 : BOX.space / 2), below = inside.at.has("out") ? 0 : BOX.space;
    return { width, height: inside.height + above + below, inside, x: (width - inside.width) / 2, y: above };
  }

  /** Children of an unfolded part, each a box of its own; "in" and "out": what is read from around it, and there. */
  _container(part) {
    const sizes = part.children.map((child) => this.measure(child));
    const boxes = new Map(sizes.map((size, k) => [`part ${k}`, size]));
    const childOf = (i) => part.children.findIndex((child) => i >= child.first && i <= child.last);
    const pairs = new Set();
    for (const [s, t] of this.edges) {
      if (t < part.first || s > part.last) continue;
      const a = childOf(s), b = childOf(t);
      if (a !== b) pairs.add(`${a < 0 ? "in" : `part ${a}`}, ${b < 0 ? "out" : `part ${b}`}`);
    }
    const edges = [...pairs].map((pair) => pair.split(", "));
    for (const end of ["in", "out"]) if (edges.some((pair) => pair.includes(end))) boxes.set(end, END);
    const placed = this._arrange(boxes, edges);
    const items = part.children.map((child, k) => ({ part: child, size: sizes[k], ...placed.at.get(`part ${k}`) }));
    return { ...placed, items };
  }

  /** The nodes of a block, and "ports": those outside whose values it reads. */
  _block(part) {
    const shown = this.shown(part), inside = new Set(shown);
    const boxes = new Map(), edges = [], refs = new Map([["out", "out"]]), names = new Map();
    const named = (ref, name, box) => { names.set(ref, name); refs.set(name, ref); boxes.set(name, box); };
    shown.forEach((i, k) => named(i, `n${k}`, this._size(i)));
    for (const i of shown) {
      for (const s of this.sources(i)) {
        if (!names.has(s)) named(s, `s${names.size}`, PORT);
        edges.push([names.get(s), names.get(i)]);
      }
    }
    const last = shown.filter((i) => this._goesOn(i, part));
    if (last.length) boxes.set("out", END);
    last.forEach((i) => edges.push([names.get(i), "out"]));
    const placed = this._arrange(boxes, edges);
    const items = [...names].map(([ref, name]) => ({ node: ref, port: !inside.has(ref), ...placed.at.get(name) }));
    return {
      ...placed, items: items.sort((a, b) => a.y - b.y || a.node - b.node),
      edges: placed.edges.map(({ from, to, points }) => ({ from: refs.get(from), to: refs.get(to), points })),
    };
  }

  /** Nodes that a node reads, through views if these are not shown. */
  sources(i) {
    if (!this.views) return this.graph.throughViews(i);
    return new Set(this.graph.nodes[i].src.filter((s) => s !== null && s >= 0));
  }

  /** Leafs that are shown on a node, for it reads them: weights, inputs, memory. */
  chips(i) { return this.graph.leafsOf(i, !this.views); }

  _size(i) {
    if (this.graph.nodes[i].view) return { width: NODE.width, height: NODE.view };
    return { width: NODE.width, height: NODE.height + NODE.chip * this.chips(i).length };
  }

  /** Whether a value of a block is read behind it. */
  _goesOn(i, part) {
    const { nodes } = this.graph;
    return this.graph.usersOf(i).some((user) => user > part.last || (nodes[user].quiet && this._goesOn(user, part)));
  }

  /** Boxes {width, height} by name and pairs of names, laid out from top to bottom; what was laid out once is kept. */
  _arrange(boxes, pairs) {
    const key = JSON.stringify([[...boxes].map(([name, { width, height }]) => [name, width, height]), pairs]);
    let found = this.arranged.get(key);
    if (!found) this.arranged.set(key, (found = stacked(connected(boxes, pairs).map((part) => arrange(...part)))));
    return found;
  }
}

/** The groups of boxes that lines connect, each with its pairs; the smallest first. */
function connected(boxes, pairs) {
  const group = new Map([...boxes.keys()].map((name) => [name, new Set([name])]));
  for (const [a, b] of pairs) {
    const [small, large] = [group.get(a), group.get(b)].sort((x, y) => x.size - y.size);
    if (small === large) continue;
    for (const name of small) { large.add(name); group.set(name, large); }
  }
  const groups = [...new Set(group.values())].sort((x, y) => x.size - y.size);
  return groups.map((names) => [
    new Map([...boxes].filter(([name]) => names.has(name))), pairs.filter(([a]) => names.has(a)),
  ]);
}

/** What is not connected in rows above the largest of all, no wider than that. */
function stacked(all) {
  const main = all[all.length - 1], at = new Map(), edges = [];
  if (!main) return { width: 0, height: 0, at, edges };
  const width = Math.max(...all.map((one) => one.width));
  let [x, y, tall] = [0, 0, 0];
  for (const one of all) {
    if (one === main || x + one.width > width) [x, y, tall] = [0, tall ? y + tall + GAP.ranksep : y, 0];
    if (one === main) x = (width - one.width) / 2;
    for (const [name, box] of one.at) at.set(name, { ...box, x: box.x + x, y: box.y + y });
    for (const edge of one.edges) edges.push({ ...edge, points: edge.points.map((p) => ({ x: p.x + x, y: p.y + y })) });
    x += one.width + GAP.nodesep;
    tall = Math.max(tall, one.height);
  }
  return { width, height: y + tall, at, edges };
}

function arrange(boxes, pairs) {
  const g = new dagre.graphlib.Graph();
  g.setGraph({ rankdir: "TB", ...GAP });
  g.setDefaultEdgeLabel(() => ({}));
  for (const [name, { width, height }] of boxes) g.setNode(name, { width, height });
  for (const [a, b] of pairs) g.setEdge(a, b);
  dagre.layout(g);
  const { width, height } = g.graph(), at = new Map();
  for (const name of boxes.keys()) {
    const box = g.node(name);
    at.set(name, { x: box.x - box.width / 2, y: box.y - box.height / 2, width: box.width, height: box.height });
  }
  const edges = g.edges().map(({ v, w }) => ({ from: v, to: w, points: g.edge(v, w).points }));
  return { width: Math.max(0, width || 0), height: Math.max(0, height || 0), at, edges };
}
