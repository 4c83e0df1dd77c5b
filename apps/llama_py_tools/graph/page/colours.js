// Colourings: what a colour says of a node, and its legend.
import { bytes, count, short, time } from "./format.js";

// Hues of what is likely to stand side by side are far apart.
const HUES = {
  matrix: 255, attention: 20, delta_net: 320, linear_attention: 320, ssm: 345, norm: 150, rope: 195,
  arithmetic: 85, unary: 60, glu: 40, rows: 290, copy: 225, concat: 215, sort: 120, reduce: 110, mask: 175,
  hyper_connections: 135, collective: 5,
};
const SPARE = [255, 85, 20, 150, 320, 195, 50, 285, 120, 350, 225, 175];

const coloured = (hue, strength = 1) => `oklch(var(--cl) calc(var(--cc) * ${strength}) ${hue})`;
const GREY = coloured(0, 0);
const BAD = "var(--bad)";

/** A colour for t from 0 (little) to 1 (most). */
export function heat(t) {
  const p = Math.round(200 * Math.min(1, Math.max(0, t)));
  if (p <= 100) return `color-mix(in oklab, var(--mid) ${p}%, var(--low))`;
  return `color-mix(in oklab, var(--high) ${p - 100}%, var(--mid))`;
}

/** The colourings that there are for a graph, by key. */
export function colourings(graph, ops) {
  const words = (text) => text.replaceAll("_", " ");
  const found = [
    categories("op", "Kind of op", graph, (node) => words(ops[node.op].family), (kind, i) =>
      kind === "views" ? GREY : coloured(HUES[kind.replaceAll(" ", "_")] ?? SPARE[i % SPARE.length])),
    categories("device", "Device", graph, (node) => node.device || "none", (kind, i) =>
      kind === "none" ? GREY : coloured(SPARE[i % SPARE.length])),
    categories("type", "Type of weights", graph, (node) => weightType(graph, node), (kind, i) =>
      kind === "no weights" ? GREY : coloured(SPARE[i % SPARE.length])),
    numbers("bytes", "Bytes of results", graph, (node) => (node.view ? null : node.bytes), bytes, { root: 4 }),
  ];
  if (graph.data.timed) {
    found.push(numbers("time", "Time", graph, (node) => node.us ?? null, time, { root: 2 }));
  }
  for (const name of graph.data.overlays) {
    const value = (node) => {
      const v = (node.overlay || {})[name];
      return v === undefined ? null : Number(v);
    };
    found.push(numbers(`overlay:${name}`, name, graph, value, short, { most: true }));
  }
  return new Map(found.map((colouring) => [colouring.key, colouring]));
}

/** Kinds of layers, by what is in them: [{words, colour, count}], the most frequent first. */
export function layerKinds(graph) {
  const sizes = new Map();
  for (const { words } of graph.layers) sizes.set(words, (sizes.get(words) || 0) + 1);
  const kinds = [...sizes].sort((a, b) => b[1] - a[1]), taken = new Set();
  return kinds.map(([words, number], i) => {
    const [first] = words.split(" → ");
    let hue = HUES[first.replaceAll(" ", "_")] ?? SPARE[i % SPARE.length];
    while (taken.has(hue)) hue = (hue + 97) % 360;
    taken.add(hue);
    return { words, colour: coloured(hue), number };
  });
}

/** The type of the largest weight that a node reads. */
function weightType(graph, node) {
  const weights = node.src.filter((s) => s < 0 && s !== null).map((s) => graph.at(s)).filter((s) => s.kind === "weight");
  if (!weights.length) return "no weights";
  return weights.reduce((a, b) => (b.bytes > a.bytes ? b : a)).type;
}

function categories(key, label, graph, kindOf, colourOf) {
  const sizes = new Map();
  for (const node of graph.nodes) sizes.set(kindOf(node), (sizes.get(kindOf(node)) || 0) + 1);
  const kinds = [...sizes.keys()].sort((a, b) => sizes.get(b) - sizes.get(a));
  const colours = new Map(kinds.map((kind, i) => [kind, colourOf(kind, i)]));
  return {
    key, label, numeric: false,
    of: (node) => ({ colour: colours.get(kindOf(node)), strength: 0.16 }),
    kindOf,
    legend: kinds.map((kind) => ({ label: kind, colour: colours.get(kind), note: count(sizes.get(kind)) })),
    /** Parts of a whole: [colour, share] by how many computed nodes are of a kind. */
    mix(nodes) {
      const found = new Map();
      const shown = graph.computed(nodes);
      for (const i of shown) found.set(kindOf(graph.nodes[i]), (found.get(kindOf(graph.nodes[i])) || 0) + 1);
      return kinds.filter((kind) => found.has(kind)).map((kind) => [colours.get(kind), found.get(kind) / shown.length]);
    },
    note: () => "",
  };
}

/** root: of the share of the most, so that middling values are seen; most: parts show the largest value of theirs
    on a logarithmic scale, else their sum. */
function numbers(key, label, graph, value, text, { root = 1, most = false }) {
  const finite = graph.nodes.map(value).filter((v) => v !== null && Number.isFinite(v));
  const [low, high] = [least(finite), -least(finite.map((v) => -v))];
  const positive = finite.filter((v) => v > 0);
  const floor = least(positive);
  const logarithmic = most && low >= 0 && high / floor > 100;
  const scale = (v) => {
    if (logarithmic) return v <= 0 ? 0 : Math.log(v / floor) / Math.log(high / floor || 2);
    if (most) return high > low ? (v - low) / (high - low) : 0.5;
    return high > 0 ? Math.max(0, v / high) ** (1 / root) : 0;
  };
  const inverse = (t) => {
    if (logarithmic) return floor * (high / floor) ** t;
    return most ? low + t * (high - low) : high * t ** root;
  };
  const of = (v) => {
    if (v === null) return { colour: "var(--quiet)", strength: 0.08 };
    return Number.isFinite(v) ? { colour: heat(scale(v)), strength: 0.6 } : { colour: BAD, strength: 0.6 };
  };
  const total = (nodes) => {
    const values = nodes.map((i) => value(graph.nodes[i])).filter((v) => v !== null);
    if (!values.length) return null;
    const bad = values.find((v) => !Number.isFinite(v));
    if (bad !== undefined) return bad;
    return most ? -least(values.map((v) => -v)) : values.reduce((a, b) => a + b, 0);
  };
  // A part is coloured by its sum: the mean of all layers is in the middle.
  const sums = most ? [] : graph.layers.map((part) => total(part.nodes) || 0);
  const middle = sums.reduce((a, b) => a + b, 0) / (sums.length || 1) || high;
  return {
    key, label, numeric: true, value, text,
    of: (node) => of(value(node)),
    ofPart(nodes) {
      const v = total(nodes);
      if (most || v === null || !Number.isFinite(v)) return of(v);
      return { colour: heat(v / (2 * middle || 1)), strength: 0.6 };
    },
    total,
    note: (nodes) => { const v = total(nodes); return v === null ? "" : text(v); },
    scale: [0, 0.5, 1].map((t) => text(finite.length ? inverse(t) : 0)),
    logarithmic, missing: finite.length < graph.nodes.length, bad: graph.nodes.some((node) => {
      const v = value(node);
      return v !== null && !Number.isFinite(v);
    }),
  };
}

const least = (values) => values.reduce((a, b) => (b < a ? b : a), values.length ? values[0] : 0);
