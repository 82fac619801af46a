// What must come before what, where orders are too many to be drawn: steps in layers, an arrow for each pair that does
// not follow from others.
const required = () => episode().relations.filter(([, , kind]) => isAntiDiamond(kind));

function layers() {
  const before = new Map(required().map(([, second]) => [second, []]));
  for (const [first, second] of required()) before.get(second).push(first);
  const depth = new Map();
  const layerOf = (step) => {
    if (!depth.has(step)) depth.set(step, Math.max(-1, ...(before.get(step) || []).map(layerOf)) + 1);
    return depth.get(step);
  };
  const bound = new Set(required().flatMap(([first, second]) => [first, second]));
  const found = [];
  for (const step of [...bound].sort((a, b) => a - b)) (found[layerOf(step)] ||= []).push(step);
  // Steps stand beside what they wait for.
  const height = new Map();
  found.forEach((layer, number) => {
    const mean = (step) => {
      const of = (before.get(step) || []).map((one) => height.get(one));
      return of.length ? of.reduce((a, b) => a + b, 0) / of.length : 0;
    };
    if (number > 0) layer.sort((a, b) => mean(a) - mean(b) || a - b);
    layer.forEach((step, row) => height.set(step, row - (layer.length - 1) / 2));
  });
  return { found, height, free: episode().steps.map((_, step) => step).filter((step) => !bound.has(step)) };
}

function buildPartialOrder() {
  const { found, height, free } = layers();
  const most = Math.max(1, ...found.map((layer) => layer.length)), gap = 62;
  const width = 560, tall = gap * most, apart = found.length > 1 ? Math.min(170, (width - 60) / (found.length - 1)) : 0;
  const left = (width - apart * Math.max(0, found.length - 1)) / 2;
  const at = new Map(found.flatMap((layer, number) => layer.map((step) => [step, [left + apart * number, tall / 2 + gap * height.get(step)]])));
  const follows = (first, second) => required().some(([a, b]) => a === first && required().some(([c, d]) => c === b && d === second));
  const arrows = required().filter(([first, second]) => !follows(first, second)).map(([first, second, kind]) =>
    svg("g", { class: `relation ${kind}` }, svg("line", { class: "line", ...between(at.get(first), at.get(second), 24) }),
      svg("path", { class: "head", d: arrow(at.get(first), at.get(second), 24) })));
  const nodes = [...at].map(([step, [x, y]]) => svg("g", { class: "node" },
    svg("circle", { cx: x, cy: y, r: 17 }), svg("text", { x, y: y + 5 }, String(step))));
  const legal = episode().numLegal, share = legal === null ? null : (1e6 * legal) / episode().numOrders;
  replace(byId("solid"),
    el("p", { class: "message" }, `${episode().numOrders.toLocaleString("en")} orders of ${episode().steps.length} steps are ${DATA.n === null ? "not drawn beside others" : "too many to be drawn"}`
      + (legal === null ? "." : `: ${legal.toLocaleString("en")} of them are legal, ${legal === episode().numOrders ? "100%" : percent(share)}, those that follow every arrow.`)),
    found.length ? svg("svg", { class: "poset", viewBox: `0 0 ${width} ${tall}`, role: "img",
      "aria-label": `What must come before what: ${required().map(([a, b]) => `${a} before ${b}`).join(", ")}` }, ...arrows, ...nodes) : null,
    free.length ? el("p", { class: "free" }, el("span", { class: "soft" }, "Anywhere: "), ...free.map(badge)) : null);
}

// Of sampled evidence the relations are known, not what a replay of every order would say.
function verdict(passes) {
  if (episode().complete) return passes ? "legal" : "not legal";
  return passes ? "keeps the certified relations" : "breaks a certified relation";
}

// The greedy answer, step by step, and where it breaks the rule.
function fillAnswer() {
  const now = mass();
  if (!now || !now.answer) return replace(byId("order"));
  const steps = (now.answer.includes("-") ? now.answer.split("-") : [...now.answer]).map(Number);
  const place = new Map(steps.map((step, number) => [step, number]));
  const broken = required().filter(([first, second]) => place.get(first) > place.get(second));
  const early = new Set(broken.map(([, second]) => second));
  replace(byId("order"), el("h3", {}, "The greedy answer", el("span", { class: `tag ${now.passes ? "legal" : "illegal"}` }, verdict(now.passes))),
    el("p", { class: "free" }, ...steps.map((step) => el("span", { class: early.has(step) ? "badge early" : "badge" }, String(step)))),
    broken.length ? el("p", { class: "small" }, broken.map(([first, second]) => `${second} stands before ${first}`).join(", ") + ".") : null);
}
