// The keyboard: arrows go from box to box, unfold and fold; / searches.

/** Buttons of boxes in the order in which they are read. */
const faces = (canvas) => [...canvas.querySelectorAll(".face, .head > .fold")];

export function listen(app, { canvas, pane, search }) {
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const typing = ["INPUT", "SELECT", "TEXTAREA"].includes(document.activeElement?.tagName);
    const action = typing ? null : actions(app, canvas, pane, search)[event.key];
    if (action && action() !== false) event.preventDefault();
  });
}

function actions(app, canvas, pane, search) {
  const here = () => document.activeElement?.closest?.(".face, .head > .fold");
  const go = (step) => () => {
    const all = faces(canvas), at = all.indexOf(here());
    const next = at < 0 ? all[0] : all[at + step];
    if (!next) return false;
    next.focus({ preventScroll: true });
    next.scrollIntoView({ block: "nearest", behavior: "instant" });
    return true;
  };
  const fold = (open) => () => {
    const face = here();
    if (!face) return false;
    if (face.getAttribute("aria-expanded") === String(!open)) {
      face.click();
      return true;
    }
    if (!open) canvas.querySelector(`[data-part="${face.closest(".box")?.dataset.part}"] > .head > .fold`)?.focus();
    return true;
  };
  return {
    "/": () => { search.focus(); search.select(); },
    Escape: () => { app.select(null); app.showPanel(""); },
    ArrowDown: go(1), ArrowUp: go(-1), ArrowRight: fold(true), ArrowLeft: fold(false),
    "+": () => app.zoomBy(1.2), "=": () => app.zoomBy(1.2), "-": () => app.zoomBy(1 / 1.2), 0: () => app.fit(),
  };
}
