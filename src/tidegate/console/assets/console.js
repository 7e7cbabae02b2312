"use strict";
// Without this script every page works: links lead, forms send. With it pages follow what happens.
(() => {
  const root = document.documentElement;
  const kept = (() => { try { return localStorage.getItem("theme"); } catch { return null; } })();
  if (kept === "dark" || kept === "light") root.dataset.theme = kept;

  start(); // the page is there: this script is deferred

  function start() {
    const button = document.querySelector("[data-theme-switch]");
    if (button) {
      button.hidden = false;
      button.addEventListener("click", () => {
        const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
        root.dataset.theme = dark ? "light" : "dark";
        try { localStorage.setItem("theme", root.dataset.theme); } catch { /* private windows */ }
      });
    }
    document.addEventListener("submit", (event) => {
      const question = event.target.dataset.confirm;
      if (question && !window.confirm(question)) event.preventDefault();
    });
    if (document.body.hasAttribute("data-signed-in") && "SharedWorker" in window) follow();
  }

  function follow() {
    const worker = new SharedWorker("/ui/assets/events.js");
    const stale = document.querySelector(".stale");
    let waiting = null;
    worker.port.onmessage = ({ data: { name } }) => {
      if (stale) stale.hidden = name !== "lost";
      const live = document.getElementById("live");
      if (!live || document.hidden || !live.dataset.live.split(" ").includes(name)) return;
      if (waiting !== null || busy(live)) return; // somebody is writing or choosing there
      waiting = setTimeout(() => { waiting = null; if (!busy(live)) window.htmx && window.htmx.trigger(live, "refresh"); }, 150);
    };
    worker.port.start();
    addEventListener("pagehide", () => worker.port.postMessage("bye"));
  }

  function busy(live) {
    const at = document.activeElement;
    return (live.contains(at) && at !== document.body && /^(INPUT|TEXTAREA|SELECT|BUTTON|SUMMARY|A)$/.test(at.tagName)) ||
      live.querySelector("details[open]") !== null || String(getSelection()).length > 0;
  }
})();
