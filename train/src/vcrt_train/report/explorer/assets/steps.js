// The choice of an episode, its steps, and where it comes from.
function fillChoice() {
  const now = episode();
  const names = [...new Set(DATA.schemas.filter((s) => s.shown).map((s) => s.environment))];
  const label = (name) => DATA.schemas.find((s) => s.environment === name).environmentLabel;
  replace(byId("environment"), ...names.map((name) => option(name, label(name), name === now.environment)));
  const schemas = DATA.schemas.filter((s) => s.environment === now.environment && s.shown);
  replace(byId("schema"), ...schemas.map((s) => option(s.schema, s.schema.replaceAll("_", " "), s.schema === now.schema)));
  const some = DATA.episodes.map((one, number) => [one, number])
    .filter(([one]) => one.environment === now.environment && one.schema === now.schema);
  replace(byId("episode"), ...some.map(([one, number]) =>
    option(number, one.id.split("/").at(-1), number === state.episode)));
  byId("previous").disabled = state.episode === 0;
  byId("next").disabled = state.episode === DATA.episodes.length - 1;
  const schema = schemas.find((s) => s.schema === now.schema);
  byId("of-schema").textContent = `${schema.shown} of ${schema.total} episodes of ${now.environment}/${now.schema} `
    + "are on this page: the first ones, or those that were named.";
}

function option(value, text, selected) {
  return filled(new Option(text, value, selected, selected), {}, []);
}

const firstOf = (test) => DATA.episodes.findIndex(test);

function listenToChoice() {
  byId("environment").addEventListener("change", (event) =>
    goTo(firstOf((one) => one.environment === event.target.value)));
  byId("schema").addEventListener("change", (event) =>
    goTo(firstOf((one) => one.environment === episode().environment && one.schema === event.target.value)));
  byId("episode").addEventListener("change", (event) => goTo(Number(event.target.value)));
  byId("previous").addEventListener("click", () => goTo(state.episode - 1));
  byId("next").addEventListener("click", () => goTo(state.episode + 1));
  byId("choice").addEventListener("submit", (event) => event.preventDefault());
}

function fillSteps() {
  const now = episode();
  replace(byId("step-list"), ...now.steps.map(([signature, native], step) =>
    el("li", {}, badge(step), el("div", {}, el("strong", {}, signature), native ? el("pre", {}, native) : null))));
  reachable(byId("steps"));
  replace(byId("facts"), ...described([["episode", now.id], ...now.facts]));
  replace(byId("initial"), ...described([["state", now.hashes[now.start]], ...now.initial]));
  const legal = now.numLegal === null ? `The legal orders of ${now.steps.length} steps are too many to count`
    : `${now.numLegal.toLocaleString("en")} of ${now.numOrders.toLocaleString("en")} orders ${now.complete ? "are legal" : "keep the certified relations"}`;
  replace(byId("lead"), el("strong", {}, `${legal}. `),
    ...[["precedes", "is refused"], ["conflicts", "ends in another state"], ["observes", "gives other outputs"]].flatMap(([kind, fate]) => {
      const pairs = now.relations.filter((relation) => relation[2] === kind);
      return pairs.flatMap(([first, second], place) => [place ? ", " : "", badge(first), " before ", badge(second)])
        .concat(pairs.length ? [`: the other way round ${fate}. `] : []);
    }), "In any order: ", ...now.waves.flatMap((wave, place) => [place ? ", then " : "", ...wave.map(badge)]), ".");
}

function described(pairs) {
  return pairs.flatMap(([name, value]) => [el("dt", {}, name || "value"), el("dd", {}, value)]);
}
