"use strict";
// One stream of events for all tabs of this browser: a worker that they share listens, and tells each of them.
const tabs = new Set();
let source = null;
const NAMES = ["now", "denials", "clients", "rules", "mine", "newest", "tick"];

function tell(name, data) {
  for (const tab of tabs) tab.postMessage({ name, data });
}

function listen() {
  if (source !== null) return;
  source = new EventSource("/ui/events");
  for (const name of NAMES) source.addEventListener(name, (event) => tell(name, event.data));
  source.onopen = () => tell("open", "");
  source.onerror = () => {
    tell("lost", "");
    if (source.readyState === EventSource.CLOSED) { // signed out, or too many
      source = null;
      setTimeout(() => { if (tabs.size > 0) listen(); }, 10000);
    }
  };
}

self.onconnect = (event) => {
  const tab = event.ports[0];
  tabs.add(tab);
  tab.onmessage = (message) => {
    if (message.data !== "bye") return;
    tabs.delete(tab);
    if (tabs.size === 0 && source !== null) { source.close(); source = null; }
  };
  listen();
};
