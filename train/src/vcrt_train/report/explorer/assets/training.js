// What a run says to the episode: before training and after each kept update.
const ROLES = { "held out": "held out from this run", closed: "held out, and closed", "trained on": "a source of this run",
  "set aside": "set aside: this run never trained on it" };

function fillTraining() {
  if (!DATA.runs.length) return;
  replace(byId("run"), ...DATA.runs.map((run, number) =>
    option(number, `${run.method}, ${run.heldOutLabel} held out, seed ${run.seed} (${ROLES[episode().runs[number].role]})`, number === state.run)));
  const stops = masses().map((mass, stop) => {
    const update = updates()[stop], input = el("input", { type: "radio", name: "stop", value: stop });
    input.checked = stop === state.stop;
    input.addEventListener("change", () => chooseStop(stop));
    return el("label", {}, input, el("span", { class: "stop" }, el("span", {}, stopName(update)),
      el("span", { class: "bar", "aria-hidden": "true" }, bar(mass)),
      el("span", { class: "z" }, percent(mass.z))));
  });
  replace(byId("stops"), el("legend", {}, masses().length ? "Before training, and after updates; Z+ is the probability of all legal orders" : "Probabilities"),
    ...stops);
  byId("stops").hidden = !masses().length;
  fillMass();
}

function bar(mass) {
  return svg("svg", { viewBox: "0 0 100 6", preserveAspectRatio: "none" },
    svg("rect", { class: "other", x: 0, y: 0, width: 100, height: 6 }), svg("rect", { class: "legal", x: 0, y: 0, width: mass.z / 10000, height: 6 }));
}

function chooseStop(stop) {
  state.stop = stop;
  for (const input of document.querySelectorAll("#stops input")) input.checked = Number(input.value) === stop;
  drawSizes(); fillMass(); fillOrder(); fillTable(); writeAddress();
}

function fillMass() {
  const now = mass();
  if (!now) {
    byId("mass").textContent = said()?.role === "closed"
      ? "This run holds the episode's environment out, and no evaluation is recorded in both ledgers: what it makes of it stays closed."
      : "This run says nothing of this episode.";
    return;
  }
  const first = masses()[0], update = updates()[state.stop];
  const answer = now.answer === null ? "no order at all" : spaced(now.answer);
  replace(byId("mass"), el("strong", {}, `Z+ ${percent(now.z)}`), now.error !== null ? ` (standard error ${percent(now.error)})` : "",
    update === 0 ? " before training" : ` after ${update} updates, from ${percent(first.z)} before`,
    `. Greedy answer ${answer}, ${verdict(now.passes)}.`,
    now.lost ? ` ${percent(now.lost)} on answers that are no order.` : "");
}

function listenToTraining() {
  if (!DATA.runs.length) return;
  byId("run").addEventListener("change", (event) => {
    const update = masses().length ? updates()[state.stop] : null;
    state.run = Number(event.target.value);
    const stop = masses().length ? updates().indexOf(update) : -1;
    state.stop = stop < 0 ? Math.max(0, masses().length - 1) : stop;
    fillTraining(); fillLegend(); drawSizes(); fillOrder(); fillTable(); writeAddress();
  });
}

// The picture in words and numbers.
function fillTable() {
  if (!isDrawn() || !byId("all-orders").open) return;
  const now = episode();
  const stops = masses().map((_, stop) => stopName(updates()[stop]));
  replace(byId("order-table"),
    el("caption", {}, `All orders of ${now.id}`),
    el("thead", {}, el("tr", {}, ...["order", "legal", "what became of it"].map((name) => el("th", { scope: "col" }, name)),
      ...stops.map((name) => el("th", { scope: "col", class: "n" }, name)))),
    el("tbody", {}, ...now.orders.map(([legal], k) => el("tr", {},
      el("th", { scope: "row" }, spaced(DATA.orders[k])), el("td", {}, legal ? "yes" : "no"), el("td", {}, fate(k)),
      ...masses().map((mass) => el("td", { class: "n" }, percent(mass.p[k])))))),
    masses().length ? el("tfoot", {}, el("tr", {}, el("th", { scope: "row", colspan: 3 }, "Z+, all legal orders"),
      ...masses().map((mass) => el("td", { class: "n" }, percent(mass.z))))) : null);
}
