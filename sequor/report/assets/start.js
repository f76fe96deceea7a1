"use strict";

(() => {
  let theme = "";
  try { theme = localStorage.getItem("sequor-theme") || ""; } catch { /* storage may be off */ }
  sequor.theme(theme);
  const keys = document.getElementById("keys");
  document.getElementById("theme").addEventListener("click", () => sequor.theme());
  document.getElementById("help").addEventListener("click", () => keys.showModal());
  for (const [key, page] of [["s", "summary"], ["b", "browse"], ["f", "figures"], ["t", "tables"]]) sequor.sequence("g" + key, () => sequor.go(page));
  sequor.sequence("t", () => sequor.theme());
  sequor.sequence("?", () => keys.showModal());
  document.addEventListener("keydown", sequor.key);
  document.addEventListener("themed", () => { if (sequor.summary && sequor.here && sequor.here.name === "browse") sequor.show(); });
  window.addEventListener("hashchange", sequor.show);
  sequor.load("summary", "data/summary.js").then((data) => {
    sequor.summary = data;
    document.title = `${data.title}: Sequor report`;
    return sequor.show();
  }).catch((error) => {
    document.getElementById("loading").textContent = error.message;
    throw error;
  });
})();
