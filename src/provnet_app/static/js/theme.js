// Runs before the first paint, so that a dark page never flashes white. Storage may be forbidden: then the system decides.
(function () {
  try {
    const kept = localStorage.getItem("provnet-theme");
    if (kept === "light" || kept === "dark") document.documentElement.dataset.theme = kept;
  } catch {
    /* nothing kept */
  }
})();
