// Everything together.
function show() {
  fillChoice(); fillSteps(); drawGraph(); fillPair();
  buildSolid(); layOut(); fillOrder(); fillTraining(); fillTable();
  writeAddress();
}

function goTo(number) {
  if (number < 0 || number >= DATA.episodes.length) return;
  const run = state.run;
  selectEpisode(number);
  // A run that was chosen stays, as long as it says something here.
  if (run >= 0 && episode().runs[run].masses.length && episode().runs[run].role === "held out") state.run = run;
  state.stop = Math.max(0, masses().length - 1);
  show();
}

listenToChoice(); listenToView(); listenToTraining();
byId("all-orders").addEventListener("toggle", fillTable);
window.addEventListener("hashchange", () => { readAddress(); show(); });
readAddress();
show();
