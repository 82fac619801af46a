// Elements are made from text alone: nothing that the data holds is ever read as HTML.
const SVG = "http://www.w3.org/2000/svg";
const byId = (id) => document.getElementById(id);

function filled(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value !== null && value !== undefined && value !== false) node.setAttribute(name, value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}
const el = (tag, attributes, ...children) => filled(document.createElement(tag), attributes, children);
const svg = (tag, attributes, ...children) => filled(document.createElementNS(SVG, tag), attributes, children);
const replace = (node, ...children) => { node.replaceChildren(...children.filter(Boolean)); };

function percent(millionths) {
  const value = millionths / 10000;
  if (value < 0.01) return "< 0.01%";
  if (value > 99.99) return "> 99.99%";
  return `${value.toFixed(value < 10 ? 2 : 1)}%`;
}
const spaced = (order) => (order.includes("-") ? order.split("-") : [...order]).join(" ");
const short = (hash) => hash.slice(0, 10);
const code = (hash) => el("code", { title: hash }, short(hash));
// What scrolls must be reached by keyboard; what does not is no stop on the way.
function reachable(node) {
  for (const part of node.querySelectorAll("pre, .table")) {
    if (part.scrollHeight > part.clientHeight + 1 || part.scrollWidth > part.clientWidth + 1) part.tabIndex = 0;
    else part.removeAttribute("tabindex");
  }
}
const badge = (step) => el("span", { class: "badge" }, String(step));
