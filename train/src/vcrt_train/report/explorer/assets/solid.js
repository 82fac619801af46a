// The permutohedron: every order a vertex, every adjacent swap an edge, the two halves of a required pair apart.
// How far the halves stand apart at first, of what they can.
const PULL = 0.35;
const picture = { turned: [[1, 0, 0], [0, 1, 0], [0, 0, 1]], pull: PULL, vertices: [], edges: [], faces: [], root: null };
const MARGIN = 44;
const drawn = () => DATA.drawings[episode().drawing];
const isLegal = (order) => episode().orders[order][0] === 1;

function swapKind(number) {
  const found = episode().swaps[number];
  if (!found) return "unreached";
  const verdict = episode().pairs[found[0]].contexts[found[1]].verdict;
  const [here, there] = DATA.swaps[number];
  return verdict === "diamond" && !(isLegal(here) && isLegal(there)) ? "diamond beyond" : verdict;
}

function buildSolid() {
  byId("view").hidden = !isDrawn();
  byId("all-orders").hidden = !isDrawn();
  if (!isDrawn()) {
    buildPartialOrder();
    replace(byId("legend")); byId("keys").textContent = "";
    return;
  }
  const isWhole = (face) => face.every((v) => same(drawn().apart[v], drawn().apart[face[0]]));
  const side = (face) => (!isWhole(face) ? "torn" : isLegal(face[0]) ? "legal" : "illegal");
  picture.faces = DATA.faces.map((face) => ({ face, node: svg("path", { class: `face ${side(face)}` }) }));
  picture.edges = DATA.swaps.map(([here, there], number) => {
    const kind = swapKind(number);
    const node = svg("g", { class: `swap ${kind}`, "data-swap": `${DATA.orders[here]}-${DATA.orders[there]}` },
      svg("line", { class: "hit" }), svg("line", { class: "line" }));
    const found = episode().swaps[number];
    if (found) {
      node.addEventListener("pointerenter", () => { node.classList.add("shown"); showPair(found[0], found[1]); });
      node.addEventListener("pointerleave", () => { node.classList.remove("shown"); showPair(null); });
      node.addEventListener("click", () => pinPair(found[0]));
    }
    return { here, there, node };
  });
  picture.vertices = DATA.orders.map((order, number) => {
    const node = svg("g", { class: `vertex ${isLegal(number) ? "legal" : "illegal"}`, role: "option", "data-order": order, tabindex: "-1" },
      svg("circle", { class: "hit", r: 15 }), svg("circle", { class: "ring", r: 0 }), svg("circle", { class: "disc", r: 0 }),
      svg("circle", { class: "pip", r: 3 }));
    node.addEventListener("pointerenter", () => showOrder(number));
    node.addEventListener("pointerleave", () => showOrder(null));
    node.addEventListener("focus", () => pinOrder(number));
    node.addEventListener("click", () => { node.focus({ preventScroll: true }); pinOrder(number); });
    return node;
  });
  const edges = svg("g", { "aria-hidden": "true" }, ...picture.faces.map((f) => f.node), ...picture.edges.map((e) => e.node));
  const front = DATA.orders.map((_, k) => k).sort((a, b) => drawn().points[a][2] - drawn().points[b][2]);
  const list = svg("g", { role: "listbox", "aria-label": "Orders, by the swaps between them", "aria-describedby": "keys" },
    ...front.map((k) => picture.vertices[k]));
  list.addEventListener("keydown", walk);
  // Names stand above all discs.
  picture.names = DATA.orders.map((order, k) => svg("text", { class: isLegal(k) ? "name" : "name illegal" }, order));
  picture.root = svg("svg", { class: DATA.n > 4 ? "many" : null }, edges, list,
    svg("g", { class: "names", "aria-hidden": "true" }, ...front.map((k) => picture.names[k])));
  listenToDrag(picture.root);
  replace(byId("solid"), picture.root);
  byId("turns").hidden = !drawn().turns;
  byId("keys").textContent = "With the keyboard: arrows walk along swaps"
    + `, 1 to ${DATA.n - 1} swap that place with the next` + (drawn().turns ? ", Shift and arrows turn the solid." : ".");
  fillLegend();
}

const same = (a, b) => a.every((x, k) => Math.abs(x - b[k]) < 1e-6);

function projected() {
  const { points, apart } = drawn(), m = picture.turned;
  return points.map((point, k) => {
    const at = point.map((x, axis) => x + picture.pull * apart[k][axis]);
    return m.map((row) => row[0] * at[0] + row[1] * at[1] + row[2] * at[2]);
  });
}

function layOut() {
  if (!isDrawn()) return;
  const width = Math.max(280, byId("solid").clientWidth), at = projected();
  const reach = (axis) => Math.max(...at.map((point) => Math.abs(point[axis])), 0.3);
  // A solid keeps its height while it is turned; a flat picture takes what it needs.
  const height = Math.round(Math.min(520, Math.max(330, width * 0.72),
    drawn().turns ? Infinity : 2 * (MARGIN + ((width / 2 - MARGIN) * reach(1)) / reach(0))));
  picture.height = height;
  const scale = Math.min((width / 2 - MARGIN) / reach(0), (height / 2 - MARGIN * 0.8) / reach(1));
  const deepest = Math.max(...at.map((point) => Math.abs(point[2])), 1e-9);
  picture.largest = Math.min(42, width * 0.075);
  picture.at = at.map(([x, y, z]) => [width / 2 + scale * x, height / 2 + scale * y, z / deepest]);
  filled(picture.root, { viewBox: `0 0 ${width} ${height}`, width, height }, []);
  const edges = picture.root.firstChild;
  const depth = (numbers) => numbers.reduce((sum, k) => sum + picture.at[k][2], 0) / numbers.length;
  picture.faces.sort((a, b) => depth(a.face) - depth(b.face));
  for (const { face, node } of picture.faces) {
    if (node.classList.contains("torn")) node.style.opacity = (1 - picture.pull).toFixed(2);
    node.setAttribute("d", `M${face.map((k) => picture.at[k].slice(0, 2).map((x) => x.toFixed(1)).join(",")).join("L")}Z`);
  }
  picture.edges.sort((a, b) => depth([a.here, a.there]) - depth([b.here, b.there]));
  edges.append(...picture.faces.map((f) => f.node), ...picture.edges.map((e) => e.node));
  for (const { here, there, node } of picture.edges) {
    const [x1, y1] = picture.at[here], [x2, y2] = picture.at[there];
    for (const line of node.children) filled(line, { x1, y1, x2, y2 }, []);
    if (drawn().turns) node.style.opacity = (0.675 + 0.325 * depth([here, there])).toFixed(2);
  }
  picture.vertices.forEach((node, k) => {
    const [x, y] = picture.at[k];
    node.setAttribute("transform", `translate(${x.toFixed(1)},${y.toFixed(1)})`);
  });
  drawSizes();
}

// The area of a disc is the probability; without a run all discs are alike.
function drawSizes() {
  if (!isDrawn()) return;
  const now = mass(), plain = DATA.n > 4 ? 5 : 9;
  picture.root.classList.toggle("weighed", Boolean(now));
  picture.vertices.forEach((node, k) => {
    const radius = now ? picture.largest * Math.sqrt(now.p[k] / 1e6) : plain;
    node.querySelector(".disc").setAttribute("r", radius.toFixed(2));
    node.querySelector(".ring").setAttribute("r", now && now.greedy === k ? (Math.max(radius, 6) + 4).toFixed(2) : 0);
    const [x, y] = picture.at[k], up = y < picture.height / 2, place = state.order === k;
    const away = Math.max(radius, 5) + 5 + (now && now.greedy === k ? 5 : 0);
    filled(picture.names[k], { x: x.toFixed(1), y: (up ? y - away : y + away + 10).toFixed(1) }, []);
    picture.names[k].classList.toggle("chosen", place);
    picture.names[k].classList.toggle("shown", state.shownOrder === k);
    filled(node, { tabindex: place ? "0" : "-1", "aria-selected": String(place), "aria-label": orderLabel(k) }, []);
    node.classList.toggle("chosen", place);
  });
}

function orderLabel(k) {
  const now = mass();
  return `${spaced(DATA.orders[k])}, ${isLegal(k) ? "legal" : "not legal"}` + (now ? `, ${percent(now.p[k])}` : "");
}

function fillLegend() {
  if (!isDrawn()) return;
  const kinds = new Set(picture.edges.map((e) => e.node.getAttribute("class").replace("swap ", "")));
  const dot = (kind) => svg("svg", { class: "swatch", width: 20, height: 20, "aria-hidden": "true" },
    svg("g", { class: `vertex ${kind}`, transform: "translate(10,10)" }, svg("circle", { class: "disc", r: 7 })));
  replace(byId("legend"), el("li", {}, dot("legal"), "legal order"), el("li", {}, dot("illegal"), "illegal order"),
    ...[["diamond", "certified swap"], ["diamond beyond", "certified, outside the legal orders"], ["precedes", "anti-diamond: one is refused"],
      ["conflicts", "anti-diamond: two states"], ["observes", "anti-diamond: other outputs"], ["unreached", "nothing certified: never reached, or neither order runs"]]
      .filter(([kind]) => kinds.has(kind) || (kind === "unreached" && kinds.has("vacuous"))).map(([kind, text]) => el("li", {}, swatch(`swap ${kind}`), text)),
    masses().length ? el("li", {}, "area of a disc: probability; ring: the greedy answer") : null);
}

function walk(event) {
  const number = Number(event.key);
  const arrow = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
  if (event.key === "Home") goToOrder(0);
  else if (arrow && event.shiftKey && drawn().turns) turn(arrow[0] * 0.15, arrow[1] * 0.15);
  else if (arrow) goToOrder(towards(arrow));
  else if (number >= 1 && number < DATA.n) goToOrder(DATA.swaps.filter(([a, b, at]) => at === number - 1)
    .map(([a, b]) => (a === state.order ? b : b === state.order ? a : -1)).find((k) => k >= 0));
  else return;
  event.preventDefault();
}

function towards([dx, dy]) {
  const [x, y] = picture.at[state.order];
  let best = state.order, value = 0.2;
  for (const [a, b] of DATA.swaps) {
    const other = a === state.order ? b : b === state.order ? a : -1;
    if (other < 0) continue;
    const [tx, ty] = [picture.at[other][0] - x, picture.at[other][1] - y];
    const along = (tx * dx + ty * dy) / Math.hypot(tx, ty);
    if (along > value) [best, value] = [other, along];
  }
  return best;
}

const goToOrder = (k) => { picture.vertices[k].focus({ preventScroll: true }); };

function showOrder(k) {
  state.shownOrder = k;
  picture.names.forEach((name, number) => name.classList.toggle("shown", number === k));
  fillOrder();
}

function pinOrder(k) {
  state.order = k;
  drawSizes();
  fillOrder();
  writeAddress();
}

function fillOrder() {
  if (!isDrawn()) return fillAnswer();
  const k = state.shownOrder ?? state.order, now = episode(), [legal, answers] = now.orders[k];
  const steps = DATA.orders[k].includes("-") ? DATA.orders[k].split("-") : [...DATA.orders[k]];
  const refusal = answers.find((a) => a < 0);
  replace(byId("order"),
    el("h3", {}, `Order ${steps.join(" ")}`, " ", el("span", { class: legal ? "tag legal" : "tag illegal" }, legal ? "legal" : "not legal")),
    el("ol", { class: "trace" }, ...steps.map((step, place) => el("li", {}, badge(step),
      answers[place] === undefined ? el("span", { class: "soft" }, "not run") : answers[place] < 0
        ? el("span", { class: "refused" }, "refused") : code(now.hashes[answers[place]])))),
    refusal === undefined ? el("p", { class: "small" }, fate(k))
      : el("div", { class: "said" }, el("span", { class: "soft small" }, "The verifier's own words"),
        el("pre", {}, now.messages[-1 - refusal])),
    masses().length ? el("dl", { class: "chances" }, ...masses().map((mass, stop) =>
      el("div", { class: stop === state.stop ? "now" : null }, el("dt", {}, stopName(updates()[stop])), el("dd", {}, percent(mass.p[k]))))) : null);
  reachable(byId("order"));
}

// What became of an order, in words.
function fate(k) {
  const now = episode(), [legal, answers] = now.orders[k], end = (order) => now.hashes[now.orders[order][1].at(-1)];
  const refusal = answers.findIndex((a) => a < 0);
  if (refusal >= 0) {
    const step = spaced(DATA.orders[k]).split(" ")[refusal];
    return `${step === undefined ? "Refused as a whole" : `Step ${step} is refused`}: ${now.messages[-1 - answers[refusal]]}`;
  }
  if (legal) return `Every step is accepted, and the end is the certified state ${short(end(k))}.`;
  return `Every step is accepted, but the end is state ${short(end(k))}, not ${short(end(0))}.`;
}

function turn(aboutUp, aboutLevel) {
  const rotate = (a, b, angle) => {
    const [c, s] = [Math.cos(angle), Math.sin(angle)], m = picture.turned;
    [m[a], m[b]] = [m[a].map((x, k) => c * x + s * m[b][k]), m[b].map((x, k) => c * x - s * m[a][k])];
  };
  rotate(0, 2, aboutUp);
  rotate(1, 2, aboutLevel);
  layOut();
}

function listenToDrag(root) {
  let last = null;
  root.addEventListener("pointerdown", (event) => { last = drawn().turns && event.isPrimary ? [event.clientX, event.clientY] : null; });
  root.addEventListener("pointermove", (event) => {
    if (!last || !(event.buttons & 1)) return;
    const [dx, dy] = [event.clientX - last[0], event.clientY - last[1]];
    if (Math.hypot(dx, dy) < 3) return;
    last = [event.clientX, event.clientY];
    turn(dx / 150, event.pointerType === "touch" ? 0 : dy / 150);
  });
  root.addEventListener("pointerup", () => { last = null; });
}

function listenToView() {
  byId("pull").addEventListener("input", (event) => { picture.pull = event.target.value / 100; layOut(); });
  byId("reset").addEventListener("click", () => {
    picture.turned = [[1, 0, 0], [0, 1, 0], [0, 0, 1]];
    picture.pull = PULL;
    byId("pull").value = 100 * PULL;
    layOut();
  });
  const by = { left: [-0.2, 0], right: [0.2, 0], up: [0, -0.2], down: [0, 0.2] };
  for (const button of document.querySelectorAll("[data-turn]")) {
    button.addEventListener("click", () => turn(...by[button.dataset.turn]));
  }
  byId("pull").value = 100 * PULL;
  new ResizeObserver(() => layOut()).observe(byId("solid"));
}
