// What is looked at now; the address says it too, so that a view can be sent to someone.
const isAntiDiamond = (kind) => ["precedes", "conflicts", "observes"].includes(kind);
const DATA = JSON.parse(byId("data").textContent);
const state = { episode: 0, run: -1, stop: 0, order: 0, pair: 0, shownOrder: null, shownPair: null };
const episode = () => DATA.episodes[state.episode];
const isDrawn = () => DATA.orders.length > 0;
const said = () => (state.run < 0 ? null : episode().runs[state.run]);
const masses = () => (said() ? said().masses : []);
const mass = () => masses()[state.stop] || null;
const updates = () => DATA.runs[state.run].updates;
const stopName = (update) => (update === 0 ? "frozen" : String(update));

function readAddress() {
  const parts = new URLSearchParams(location.hash.slice(1));
  const found = DATA.episodes.findIndex((one) => one.id === parts.get("episode"));
  selectEpisode(found < 0 ? 0 : found);
  const run = DATA.runs.findIndex((one) => one.name === parts.get("run"));
  if (run >= 0) state.run = run;
  state.stop = Math.max(0, masses().length - 1);
  if (run >= 0 && parts.has("update")) {
    const stop = updates().indexOf(Number(parts.get("update")));
    if (stop >= 0 && stop < masses().length) state.stop = stop;
  }
  const order = DATA.orders.indexOf(parts.get("order"));
  if (order >= 0) state.order = order;
}

function writeAddress() {
  const parts = new URLSearchParams({ episode: episode().id });
  if (masses().length) {
    parts.set("run", DATA.runs[state.run].name);
    parts.set("update", updates()[state.stop]);
  }
  if (state.order > 0) parts.set("order", DATA.orders[state.order]);
  const text = `#${parts}`.replaceAll("%2F", "/");
  if (text !== location.hash) history.replaceState(null, "", text);
}

// The required pair is what one came to see.
function selectEpisode(number) {
  state.episode = number;
  state.order = 0;
  state.shownOrder = state.shownPair = null;
  state.pair = Math.max(0, episode().pairs.findIndex((pair) => isAntiDiamond(pair.kind)));
  state.run = bestRun();
  state.stop = Math.max(0, masses().length - 1);
}

// A run that held this episode out, of VCRT if there is one, tells most; else any that says something.
function bestRun() {
  let best = -1, value = -1;
  DATA.runs.forEach((run, number) => {
    const here = episode().runs[number];
    const worth = 4 * (here.masses.length > 0) + 2 * (here.role === "held out") + (run.methodName === "vcrt");
    if (worth > value) [best, value] = [number, worth];
  });
  return best;
}
