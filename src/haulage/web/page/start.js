// Loads the page. One script that does not arrive - a network that changed meanwhile, a server that began anew - would
// leave it blank, and a browser remembers that it failed: so it is loaded again from the start, a few times.

const AGAIN = "haulage.loads";
const LOADS_MAX = 3;
const AFTER_MILLISECONDS = 1_000;

/** @returns {number} How often it was tried before; where nothing can be remembered, often enough. */
function loadsBefore() {
  try {
    return Number(sessionStorage.getItem(AGAIN));
  } catch {
    return LOADS_MAX;
  }
}

/** @param {number} loads */
function remember(loads) {
  try {
    sessionStorage.setItem(AGAIN, String(loads));
  } catch {
    // It is then not tried again.
  }
}

import("./page.js").then(
  () => remember(0),
  (problem) => {
    console.error(problem);
    const loads = loadsBefore() + 1;
    if (loads <= LOADS_MAX) {
      remember(loads);
      setTimeout(() => location.reload(), AFTER_MILLISECONDS);
      return;
    }
    remember(0);
    /** @type {NodeListOf<HTMLElement>} */
    const sentences = document.querySelectorAll("[data-not-loaded]");
    for (const words of sentences) {
      words.hidden = words.lang !== (navigator.language.startsWith("ja") ? "ja" : "en");
    }
  },
);
