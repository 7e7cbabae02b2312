"use strict";
// Without this script every page works: links lead, forms send. With it pages follow what happens.
(() => {
  const root = document.documentElement;
  const kept = (() => { try { return localStorage.getItem("theme"); } catch { return null; } })();
  if (kept === "dark" || kept === "light") root.dataset.theme = kept;

  const waiting = new Set();
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
    worker.port.onmessage = ({ data: { name } }) => {
      if (stale) stale.hidden = name !== "lost";
      if (document.hidden) return;
      for (const live of document.querySelectorAll("[data-live]")) {
        if (live.dataset.live.split(" ").includes(name) && !waiting.has(live.id) && !busy(live)) { // nobody writes or chooses there
          waiting.add(live.id);
          setTimeout(() => refresh(live.id), 150);
        }
      }
    };
    worker.port.start();
    addEventListener("pagehide", () => worker.port.postMessage("bye"));
  }

  function refresh(id) {
    waiting.delete(id);
    const live = document.getElementById(id);
    if (live && !busy(live) && window.htmx) window.htmx.trigger(live, "refresh");
  }

  function busy(live) {
    const at = document.activeElement;
    return (live.contains(at) && at !== document.body && /^(INPUT|TEXTAREA|SELECT|BUTTON|SUMMARY|A)$/.test(at.tagName)) ||
      live.querySelector("details[open]") !== null || String(getSelection()).length > 0;
  }
})();
