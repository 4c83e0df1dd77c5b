// What stands for a node, a leaf or a folded part.
import { h } from "./dom.js";
import { bytes, percent, plural, shape, time } from "./format.js";
import { layersIn } from "./model.js";

const at = ({ x, y, width, height }) => (
  { left: `${x}px`, top: `${y}px`, width: `${width}px`, height: `${height}px` }
);

/** A node with what it reads of weights, inputs and memory. */
export function nodeCard(app, i, box) {
  const { graph } = app, node = graph.nodes[i];
  const paint = app.colouring.of(node);
  const style = { ...at(box), "--c": paint.colour, "--s": paint.strength };
  const what = `${shape(node.ne)} ${node.type}`;
  const select = () => app.select(i);
  if (node.view) {
    return h("div", { class: "card view", style, "data-node": i },
      h("button", { class: "face", "aria-label": `${node.name}, ${node.op}, ${what}`, click: select },
        h("span", { class: "op" }, node.op.toLowerCase()), h("span", { class: "name" }, node.name),
        h("span", { class: "what" }, shape(node.ne))));
  }
  const within = node.step !== undefined && node.step !== i;
  const value = (app.colouring.numeric ? app.colouring.note([i]) : graph.data.timed && node.us ? time(node.us) : "")
    || (node.between ? h("small", { title: `from ${node.between.join(", ")}` }, `⇐ ${node.between.join(", ")}`) : "")
    || (within ? h("small", { title: `computed in one step with ${graph.nodes[node.step].name}` }, "in a step ↓") : "");
  const classes = `card node${node.idle ? " idle" : ""}${node.output ? " output" : ""}`;
  return h("div", { class: classes, style, "data-node": i },
    h("button", { class: "face", "aria-label": `${node.name}, ${node.op}, ${what}`, click: select },
      h("span", { class: "row" }, h("span", { class: "name", title: node.name }, node.name), h("span", { class: "value" }, value)),
      h("span", { class: "row" }, h("span", { class: "op" }, node.op), h("span", { class: "what" }, what))),
    app.layout.chips(i).map((ref) => chip(app, ref)));
}

function chip(app, ref) {
  const leaf = app.graph.at(ref);
  const name = leaf.name.replace(/^blk\.\d+\./, "");
  return h("button", { class: `chip ${leaf.kind}`, "data-leaf": ref, click: () => app.select(ref), title: `${leaf.kind} ${leaf.name}` },
    h("span", { class: "dot" }), h("span", { class: "name" }, name), h("span", { class: "what" }, `${shape(leaf.ne)} ${leaf.type}`));
}

/** A node outside of a block that is read there. */
export function portCard(app, i, box) {
  const node = app.graph.nodes[i];
  return h("button", { class: "port", style: at(box), title: `from ${node.name}`, "data-port": i, click: () => app.reveal(i) },
    h("span", { class: "name" }, node.name));
}

/** A part that is folded. */
export function partCard(app, part, box) {
  const style = { ...at(box), ...partStyle(app, part) };
  const title = part.kind === "repeat" ? `${part.turns.length} × ${layersIn(part.turns[0]) ? "" : "part"}` : part.title;
  const words = part.kind === "repeat" ? layersIn([part]) : part.words || "";
  return h("div", { class: `card part ${part.kind}`, style, "data-part": part.id },
    h("button", { class: "face fold", "aria-expanded": "false", "aria-label": `${title} ${words}, folded`, click: () => app.toggle(part) },
      h("span", { class: "row" }, h("span", { class: "fold-sign" }), h("span", { class: "title" }, title),
        h("span", { class: "value" }, noteOf(app, part))),
      h("span", { class: "row" }, h("span", { class: "words" }, words), h("span", { class: "what" }, figures(app, part))),
      mixBar(app, part)));
}

/** The head of a part that is unfolded. */
export function partHead(app, part) {
  const fold = h("button", { class: "fold", "aria-expanded": "true", "aria-label": `${part.title}, unfolded`, click: () => app.toggle(part) },
    h("span", { class: "fold-sign" }), h("span", { class: "title" }, headTitle(part)),
    h("span", { class: "words" }, part.kind === "repeat" ? "" : part.words || ""));
  const right = h("span", { class: "value" }, noteOf(app, part) || (part.kind === "repeat" ? "" : figures(app, part)));
  return h("header", { class: "head" }, fold, part.kind === "repeat" ? turner(app, part) : null, right);
}

function headTitle(part) {
  if (part.kind !== "repeat") return part.title;
  return part.all ? `${layersIn([part])}` : `${part.turns.length} ×`;
}

/** Which turn of a repetition is shown. */
function turner(app, part) {
  const go = (step) => () => app.turn(part, (part.turn + step + part.turns.length) % part.turns.length);
  const shown = layersIn(part.turns[part.turn]);
  const all = h("button", { class: "all", "aria-pressed": String(part.all), click: () => app.showAll(part) }, part.all ? "Show one" : "Show all");
  if (part.all) return h("span", { class: "turner" }, all);
  return h("span", { class: "turner", role: "group", "aria-label": `${part.turns.length} equal layers` },
    h("button", { class: "back", "aria-label": "Previous layer", title: "Previous layer", click: go(-1) }, "‹"),
    h("output", {}, shown),
    h("button", { class: "next", "aria-label": "Next layer", title: "Next layer", click: go(1) }, "›"), all);
}

export function partStyle(app, part) {
  if (!app.colouring.numeric) return { "--c": app.colourOfPart(part), "--s": 0.05 };
  const paint = app.colouring.ofPart(part.nodes);
  return { "--c": paint.colour, "--s": paint.strength * 0.8 };
}

/** The value of a part in the colouring, and its share of the time. */
function noteOf(app, part) {
  const { graph, colouring } = app;
  if (colouring.numeric && colouring.key !== "time") return colouring.note(part.nodes);
  if (!graph.data.timed) return "";
  const us = part.nodes.reduce((sum, i) => sum + (graph.nodes[i].us || 0), 0);
  return us ? `${time(us)} · ${percent(us / graph.seconds)}` : "";
}

function figures(app, part) {
  const weights = app.weightBytes(part);
  return [plural(app.graph.computed(part.nodes).length, "node"), weights ? bytes(weights) : null].filter(Boolean).join(" · ");
}

/** The kinds of nodes in a part, as a bar. */
function mixBar(app, part) {
  if (app.colouring.numeric) return null;
  const mix = app.colouring.mix(part.nodes);
  return h("span", { class: "mix" }, mix.map(([colour, share]) => h("i", { style: { "background": colour, "flex-grow": share } })));
}
