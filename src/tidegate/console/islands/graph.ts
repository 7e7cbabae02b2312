// The graph of flows: two ends are chosen by click or keyboard, and the picture is moved and zoomed. Without this script
// the picture stays, and the ends are written in the form.
(() => {
  const frame = document.querySelector<HTMLElement>("[data-graph]");
  const svg = frame?.querySelector("svg");
  const form = document.getElementById("ends");
  if (!frame || !svg || !(form instanceof HTMLFormElement)) return;

  const names: string[] = JSON.parse(frame.dataset.entities ?? "[]");
  const from = form.elements.namedItem("from") as HTMLInputElement;
  const to = form.elements.namedItem("to") as HTMLInputElement;
  document.querySelector<HTMLElement>("[data-graph-help]")?.removeAttribute("hidden");
  svg.removeAttribute("role"); // its boxes are buttons now

  for (const box of svg.querySelectorAll<SVGGElement>("g")) {
    const entity = entityOf(box);
    if (entity === undefined) continue; // several devices that are drawn as one
    box.setAttribute("role", "button");
    box.setAttribute("tabindex", "0");
    box.setAttribute("aria-label", entity);
    if (entity === from.value || entity === to.value) box.querySelector("rect")?.classList.add("chosen");
    box.addEventListener("click", () => { if (!moved) choose(entity); });
    box.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      choose(entity);
    });
  }

  function entityOf(box: SVGGElement): string | undefined {
    const label = box.querySelector("text")?.textContent ?? "";
    const scope = box.querySelector("rect")?.classList.contains("scope") ?? false;
    return names.find((name) => name.startsWith("scope:") === scope && name.slice(name.indexOf(":") + 1) === label);
  }

  function choose(entity: string): void {
    if (from.value === "" || to.value !== "") {
      from.value = entity;
      to.value = "";
      for (const each of svg!.querySelectorAll(".chosen")) each.classList.remove("chosen");
      document.activeElement?.querySelector("rect")?.classList.add("chosen");
      for (const box of svg!.querySelectorAll(`g[role="button"]`)) {
        if (box.getAttribute("aria-label") === entity) box.querySelector("rect")?.classList.add("chosen");
      }
      return;
    }
    to.value = entity;
    (form as HTMLFormElement).requestSubmit();
  }

  // -- moving and zooming: a view of the picture ----------------------------------------------------------------------

  const whole = { x: 0, y: 0, width: svg.viewBox.baseVal.width, height: svg.viewBox.baseVal.height };
  let view = { ...whole };
  let last: { x: number; y: number } | null = null;
  let moved = false;

  function show(next: typeof view): void {
    const width = Math.min(Math.max(next.width, whole.width / 20), whole.width * 2);
    view = { x: next.x, y: next.y, width, height: (width / whole.width) * whole.height };
    svg!.setAttribute("viewBox", `${view.x} ${view.y} ${view.width} ${view.height}`);
    frame!.classList.add("zooming");
  }

  function zoom(factor: number, x = view.x + view.width / 2, y = view.y + view.height / 2): void {
    show({ x: x - (x - view.x) * factor, y: y - (y - view.y) * factor, width: view.width * factor, height: 0 });
  }

  frame.addEventListener("wheel", (event) => {
    if (!event.ctrlKey) return; // the page scrolls
    event.preventDefault();
    const box = svg.getBoundingClientRect();
    const x = view.x + ((event.clientX - box.left) / box.width) * view.width;
    const y = view.y + ((event.clientY - box.top) / box.height) * view.height;
    zoom(event.deltaY > 0 ? 1.2 : 1 / 1.2, x, y);
  }, { passive: false });
  frame.addEventListener("pointerdown", (event) => {
    last = { x: event.clientX, y: event.clientY };
    moved = false;
  });
  frame.addEventListener("pointermove", (event) => {
    if (last === null || (event.buttons & 1) === 0) return;
    const scale = view.width / svg.getBoundingClientRect().width;
    const [x, y] = [event.clientX - last.x, event.clientY - last.y];
    if (!moved && Math.hypot(x, y) < 4) return; // a click that trembles
    moved = true;
    last = { x: event.clientX, y: event.clientY };
    show({ ...view, x: view.x - x * scale, y: view.y - y * scale });
  });
  addEventListener("pointerup", () => { last = null; });
  frame.addEventListener("keydown", (event) => {
    const step = view.width / 8;
    const moves: Record<string, () => void> = {
      "+": () => zoom(1 / 1.2),
      "-": () => zoom(1.2),
      "0": () => show({ ...whole }),
      ArrowLeft: () => show({ ...view, x: view.x - step }),
      ArrowRight: () => show({ ...view, x: view.x + step }),
      ArrowUp: () => show({ ...view, y: view.y - step }),
      ArrowDown: () => show({ ...view, y: view.y + step }),
    };
    const move = moves[event.key];
    if (move === undefined) return;
    event.preventDefault();
    move();
  });
})();
