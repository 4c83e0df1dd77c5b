// Elements. Text goes in as text: nothing that a model file says is ever taken for HTML.

/** An element with attributes, listeners (functions), classes and children; null children are left out. */
export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") element.addEventListener(key, value);
    else if (key === "style") Object.entries(value).forEach(([k, v]) => element.style.setProperty(k, v));
    else element.setAttribute(key, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
  return element;
}

/** An SVG element. */
export function svg(tag, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

export const byId = (id) => document.getElementById(id);

/** A value of the style sheet, of the current colours. */
export const styleOf = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
