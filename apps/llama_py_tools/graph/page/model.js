// The graph as the page knows it: nodes, who reads whom, and the tree of parts that fold.

/** A part of the graph that folds: the whole ("root"), a repetition, a layer, or a block of nodes. */
class Part {
  constructor(kind, title, parent) {
    Object.assign(this, { kind, title, parent, open: false, turns: [[]], turn: 0, all: false, nodes: [] });
  }
  /** Those that are shown: of a repetition one turn, or all. */
  get children() { return this.all ? this.turns.flat() : this.turns[this.turn]; }
  get first() { return this.nodes[0]; }
  get last() { return this.nodes[this.nodes.length - 1]; }
}

export class Graph {
  /** data: one of `graphs` of the page's data; number: which. */
  constructor(data, number) {
    Object.assign(this, { data, number, nodes: data.nodes, leafs: data.leafs });
    for (const node of this.nodes) node.quiet = node.view || node.ne.includes(0);
    this.users = new Map();
    this.nodes.forEach((node, i) => {
      for (const s of new Set(node.src)) if (s !== null && s !== undefined) this._use(s, i);
    });
    this.blockOf = new Array(this.nodes.length);
    this.parts = [];
    this.root = this._part("root", "", null);
    this.root.open = true;
    this._add(this.root, this.root.turns[0], data.tree);
    this.layers = this.parts.filter((part) => part.kind === "layer");
    for (const part of this.parts) part.words = part.kind === "layer" ? words(part) : this._names(part);
    this.seconds = this.nodes.reduce((sum, node) => sum + (node.us || 0), 0);
  }

  /** A node, or a leaf by its negative number. */
  at(ref) { return ref >= 0 ? this.nodes[ref] : this.leafs[-1 - ref]; }

  usersOf(ref) { return this.users.get(ref) || []; }

  /** The part of a node, and all around it, from the outermost. */
  path(i) {
    const found = [];
    for (let part = this.blockOf[i]; part.parent; part = part.parent) found.unshift(part);
    return found;
  }

  /** Unfold what is around a node, and turn repetitions to it. */
  unfoldTo(i) {
    for (const part of this.path(i)) {
      part.open = true;
      if (part.kind === "repeat") {
        part.turn = part.turns.findIndex((turn) => turn.some((child) => i >= child.first && i <= child.last));
      }
    }
  }

  /** Nodes that compute something: no views, not empty, not left out. */
  computed(nodes) { return nodes.filter((i) => !this.nodes[i].quiet && !this.nodes[i].idle); }

  /** The nearest sources of a node that compute something; views are a way to them. */
  throughViews(i) {
    const found = new Set(), waiting = [...this.nodes[i].src];
    while (waiting.length) {
      const s = waiting.pop();
      if (s === null || s === undefined || s < 0) continue;
      if (this.nodes[s].quiet) waiting.push(...this.nodes[s].src);
      else found.add(s);
    }
    return found;
  }

  /** The names of a part's nodes, where these are few. */
  _names(part) {
    const computed = part.leaf ? this.computed(part.nodes) : [];
    return computed.length > 4 ? "" : computed.map((i) => this.nodes[i].name).join(" → ");
  }

  /** Leafs that a node reads; deep: also through views. */
  leafsOf(i, deep) {
    const found = new Set(), waiting = [...this.nodes[i].src].reverse();
    while (waiting.length) {
      const s = waiting.pop();
      if (s === null || s === undefined) continue;
      if (s < 0) found.add(s);
      else if (deep && this.nodes[s].quiet) waiting.push(...this.nodes[s].src);
    }
    return [...found];
  }

  _use(source, user) {
    const users = this.users.get(source);
    if (users) users.push(user);
    else this.users.set(source, [user]);
  }

  _part(kind, title, parent) {
    const part = new Part(kind, title, parent);
    part.id = `p${this.parts.length}`;
    this.parts.push(part);
    return part;
  }

  _add(parent, list, items) {
    for (const item of items) list.push(this._item(item, parent));
    parent.nodes = parent.turns.flat().flatMap((child) => child.nodes);
  }

  _item(item, parent) {
    if (item.turns) {
      const part = this._part("repeat", "", parent);
      part.open = true;
      part.turns = item.turns.map(() => []);
      item.turns.forEach((turn, i) => this._add(part, part.turns[i], turn));
      part.title = `${item.turns.length} ×`;
      return part;
    }
    if (item.blocks.length === 1) return this._block(item.blocks[0], parent, item);
    const part = this._part("layer", item.title, parent);
    part.number = item.number;
    item.blocks.forEach((block) => part.turns[0].push(this._block(block, part)));
    part.nodes = part.children.flatMap((child) => child.nodes);
    return part;
  }

  /** layer: of which it is the only block, and whose place it takes. */
  _block(block, parent, layer = null) {
    const whole = layer && layer.number !== null;
    const part = this._part(whole ? "layer" : "block", whole ? layer.title : block.title, parent);
    part.like = block.like;
    part.leaf = true;
    if (whole) Object.assign(part, { number: layer.number, inside: block.title });
    for (let i = block.first; i <= block.last; i++) {
      part.nodes.push(i);
      this.blockOf[i] = part;
    }
    return part;
  }
}

/** What a layer does, by its blocks: "delta net → experts". */
function words(layer) {
  return layer.leaf ? layer.inside : layer.children.map((block) => block.title).join(" → ");
}

/** "layers 0 to 3": the numbers of the layers in parts. */
export function layersIn(parts) {
  const numbers = [];
  const look = (part) => {
    if (part.kind === "layer") numbers.push(part.number);
    else if (part.kind === "repeat") part.turns.flat().forEach(look);
  };
  parts.forEach(look);
  if (!numbers.length) return "";
  const [low, high] = [Math.min(...numbers), Math.max(...numbers)];
  return low === high ? `layer ${low}` : `layers ${low} to ${high}`;
}
