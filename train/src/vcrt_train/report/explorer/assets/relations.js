// The relation graph, and what the verifier answered to the chosen pair in every context.
const MEANS = { diamond: "both run, one state", precedes: "one is refused", conflicts: "both run, two states", observes: "both run, one state, other outputs", vacuous: "neither runs: certifies nothing" };
const VERDICTS = { diamond: "diamond", precedes: "anti-diamond", conflicts: "anti-diamond", observes: "anti-diamond", vacuous: "vacuous" };

function drawGraph() {
  const now = episode(), n = now.steps.length, size = 200, middle = size / 2, radius = n > 4 ? 80 : 88;
  const place = now.steps.map((_, step) => {
    const angle = (2 * Math.PI * (step + 0.5)) / n - Math.PI / 2 - (n === 4 ? Math.PI / 2 : Math.PI / n);
    return [middle + radius * Math.cos(angle), middle + radius * Math.sin(angle)];
  });
  const relation = (pair) => now.relations.find(([a, b]) => pair.steps.includes(a) && pair.steps.includes(b));
  const edges = now.pairs.map((pair, number) => {
    const [first, second] = relation(pair) || pair.steps;
    const line = between(place[first], place[second], 24);
    const kind = pair.kind;
    const directed = isAntiDiamond(kind);
    return svg("g", { class: `relation ${kind}`, role: "button", tabindex: "0", "data-pair": pair.steps.join("-"),
      "aria-label": pair.title, "aria-pressed": String(number === state.pair) },
      svg("path", { class: "hit", d: strip(line, 11) }), svg("line", { class: "focus", ...line }), svg("line", { class: "line", ...line }),
      directed ? svg("path", { class: "head", d: arrow(place[first], place[second], 24) }) : null);
  });
  edges.forEach((edge, number) => {
    edge.addEventListener("pointerenter", () => showPair(number));
    edge.addEventListener("pointerleave", () => showPair(null));
    edge.addEventListener("focus", () => showPair(number));
    edge.addEventListener("blur", () => showPair(null));
    edge.addEventListener("click", () => pinPair(number));
    edge.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      pinPair(number);
    });
  });
  // Anti-diamonds are drawn last: they are what one looks for.
  const order = edges.map((_, k) => k).sort((a, b) => (now.pairs[a].kind !== "diamond") - (now.pairs[b].kind !== "diamond"));
  const nodes = place.map(([x, y], step) => svg("g", { class: "node", "aria-hidden": "true" },
    svg("circle", { cx: x, cy: y, r: 17 }), svg("text", { x, y: y + 5 }, String(step))));
  replace(byId("graph"),
    svg("svg", { viewBox: `0 0 ${size} ${size}`, role: "group", "aria-label": "Relations of the steps" },
      ...order.map((k) => edges[k]), ...nodes),
    el("ul", { class: "legend", "aria-label": "Legend of the relations" },
      ...[["diamond", "commute: may be swapped"], ["precedes", "precedes: the reversal is refused"],
        ["conflicts", "conflicts: the reversal ends elsewhere"], ["observes", "observes: the reversal gives other outputs"], ["uncertified", "nothing certified"]]
        .filter(([kind]) => now.pairs.some((pair) => pair.kind === kind))
        .map(([kind, text]) => el("li", {}, swatch(`relation ${kind}`), text))));
}

function between([x1, y1], [x2, y2], gap) {
  const length = Math.hypot(x2 - x1, y2 - y1), dx = (x2 - x1) / length, dy = (y2 - y1) / length;
  return { x1: x1 + gap * dx, y1: y1 + gap * dy, x2: x2 - gap * dx, y2: y2 - gap * dy };
}

// A line that has a width, so that it can be hit, seen by a magnifier, and outlined.
function strip({ x1, y1, x2, y2 }, half) {
  const length = Math.hypot(x2 - x1, y2 - y1), dx = (half * (x2 - x1)) / length, dy = (half * (y2 - y1)) / length;
  return `M${x1 - dy},${y1 + dx}L${x2 - dy},${y2 + dx}L${x2 + dy},${y2 - dx}L${x1 + dy},${y1 - dx}Z`;
}

function arrow(from, to, gap) {
  const { x1, y1, x2, y2 } = between(from, to, gap);
  const length = Math.hypot(x2 - x1, y2 - y1), dx = (x2 - x1) / length, dy = (y2 - y1) / length;
  const back = 13, side = 6;
  return `M${x2 + 4 * dx},${y2 + 4 * dy}L${x2 - back * dx - side * dy},${y2 - back * dy + side * dx}`
    + `L${x2 - back * dx + side * dy},${y2 - back * dy - side * dx}Z`;
}

function swatch(kind) {
  return svg("svg", { class: "swatch", width: 34, height: 10, "aria-hidden": "true" },
    svg("g", { class: kind }, svg("line", { class: "line", x1: 1, y1: 5, x2: 33, y2: 5 })));
}

function showPair(number, context) {
  state.shownPair = number;
  fillPair(context);
}

function pinPair(number) {
  state.pair = number;
  for (const edge of document.querySelectorAll("g.relation[role]")) {
    edge.setAttribute("aria-pressed", String(edge.dataset.pair === episode().pairs[number].steps.join("-")));
  }
  fillPair();
}

function fillPair(context) {
  const now = episode(), number = state.shownPair ?? state.pair, pair = now.pairs[number];
  for (const edge of document.querySelectorAll("g.relation[role]")) {
    edge.classList.toggle("shown", edge.dataset.pair === pair.steps.join("-"));
  }
  const [one, other] = pair.steps;
  const rows = pair.contexts.flatMap((at, place) => [
    [at.forward, one, other, "start"], [at.reverse, other, one, "end"]].map(([answers, first, second, which]) =>
      el("tr", { class: `${which}${place === context ? " here" : ""}` },
        which === "start" ? el("th", { rowspan: 2, scope: "rowgroup" }, at.after.length ? at.after.join(" ") : "nothing",
          el("br"), code(now.hashes[at.hash])) : null,
        el("td", { class: "run" }, `${first} ${second}`), el("td", {}, answer(answers[0])), el("td", {}, answer(answers[1])),
        which === "start" ? el("td", { rowspan: 2, class: `verdict ${at.verdict}` }, VERDICTS[at.verdict],
          el("br"), el("span", { class: "soft" }, MEANS[at.verdict])) : null)));
  const messages = [...new Set(pair.contexts.flatMap((at) => [...at.forward, ...at.reverse]).filter((a) => a < 0))];
  replace(byId("pair"),
    el("h3", {}, pair.title),
    messages.length ? el("div", { class: "said" }, el("span", { class: "soft small" }, "The verifier's own words"),
      ...messages.map((a) => el("pre", {}, now.messages[-1 - a]))) : null,
    ...pair.why.map((line) => el("p", { class: "small" }, line)),
    el("details", { id: "evidence", open: state.evidenceClosed ? null : "" },
      el("summary", {}, `Both orders, in ${pair.numContexts} context${pair.numContexts === 1 ? "" : "s"}`),
      el("div", { class: "table", role: "region", "aria-label": "Evidence" }, el("table", {},
        el("thead", {}, el("tr", {}, ...["after", "order", "first", "second", "verdict"].map((name) => el("th", { scope: "col" }, name)))),
        el("tbody", {}, ...rows))),
      pair.numContexts > pair.contexts.length
        ? el("p", { class: "small" }, `${pair.numContexts - pair.contexts.length} more contexts are in the dataset: vcrt show.`) : null));
  reachable(byId("pair"));
  byId("evidence").addEventListener("toggle", (event) => { state.evidenceClosed = !event.target.open; });
}

function answer(value) {
  if (value === undefined) return el("span", { class: "soft" }, "not run");
  return value < 0 ? el("span", { class: "refused" }, "refused") : code(episode().hashes[value]);
}
