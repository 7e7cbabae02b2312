// What is written of a rule is completed and checked while it is written; a monitor is drawn. Without this script it is a
// plain text field, and *Try it* says the same.
interface Checked {
  problems: { line: number; text: string }[];
  picture: string;
}

(() => {
  const found = document.querySelector<HTMLTextAreaElement>("textarea[data-check]");
  const written = document.getElementById("words");
  if (!found || !written) return;
  const field: HTMLTextAreaElement = found;
  const words: { keys: string[]; values: Record<string, string[]>; names: string[] } = JSON.parse(written.textContent ?? "{}");

  const says = element("div", "says");
  says.setAttribute("role", "status");
  const choices = element("ul", "choices");
  choices.setAttribute("role", "listbox");
  choices.id = "choices";
  choices.hidden = true;
  field.after(choices, says);
  field.setAttribute("role", "combobox");
  field.setAttribute("aria-controls", "choices");
  field.setAttribute("aria-expanded", "false");
  field.setAttribute("aria-autocomplete", "list");
  let chosen = 0;
  let waiting: ReturnType<typeof setTimeout> | undefined;
  let asked = 0;

  field.addEventListener("input", () => { offer(); later(); });
  field.addEventListener("blur", () => setTimeout(hide, 150));
  field.addEventListener("keydown", (event) => {
    if (event.key === " " && event.ctrlKey) { event.preventDefault(); offer(true); return; }
    if (choices.hidden) return;
    switch (event.key) {
      case "ArrowDown": move(1); break;
      case "ArrowUp": move(-1); break;
      case "Enter": case "Tab": take(choices.children[chosen]?.textContent ?? ""); break;
      case "Escape": hide(); break;
      default: return;
    }
    event.preventDefault();
  });

  function element(name: string, kind: string): HTMLElement {
    const made = document.createElement(name);
    made.className = kind;
    return made;
  }

  // -- completion ------------------------------------------------------------------------------------------------------

  function before(): string {
    const text = field.value.slice(0, field.selectionStart);
    return text.slice(text.lastIndexOf("\n") + 1);
  }

  function begun(): string {
    return /[\w:.@/+#-]*$/.exec(before())?.[0] ?? "";
  }

  function candidates(): string[] {
    const line = before();
    const key = /^\s*(?:- )?(\w+):/.exec(line)?.[1];
    if (key === undefined) return words.keys.map((each) => `${each}: `);
    return words.values[key] ?? words.names;
  }

  function offer(all = false): void {
    const start = begun();
    const fitting = start === "" && !all ? [] : candidates().filter((each) => each.startsWith(start) && each.trim() !== start).slice(0, 8);
    choices.replaceChildren(...fitting.map((each, at) => {
      const item = element("li", "");
      item.textContent = each;
      item.id = `choice-${at}`;
      item.setAttribute("role", "option");
      item.addEventListener("pointerdown", (event) => { event.preventDefault(); take(each); });
      return item;
    }));
    choices.hidden = fitting.length === 0;
    field.setAttribute("aria-expanded", String(!choices.hidden));
    chosen = 0;
    move(0);
  }

  function move(by: number): void {
    const count = choices.children.length;
    if (count === 0) return;
    chosen = (chosen + by + count) % count;
    [...choices.children].forEach((each, at) => each.setAttribute("aria-selected", String(at === chosen)));
    field.setAttribute("aria-activedescendant", `choice-${chosen}`);
  }

  function take(text: string): void {
    field.setRangeText(text, field.selectionStart - begun().length, field.selectionStart, "end");
    hide();
    later();
  }

  function hide(): void {
    choices.hidden = true;
    field.setAttribute("aria-expanded", "false");
    field.removeAttribute("aria-activedescendant");
  }

  // -- what the node says of it ----------------------------------------------------------------------------------------

  function later(): void {
    clearTimeout(waiting);
    waiting = setTimeout(check, 700);
  }

  async function check(): Promise<void> {
    const number = ++asked;
    const form = field.form!;
    const value = (name: string) => (form.elements.namedItem(name) as HTMLInputElement | null)?.value ?? "";
    const body = new URLSearchParams({ id: field.dataset.id || value("id"), version: value("version"), body: field.value });
    const answer = await fetch(field.dataset.check!, { method: "POST", body, credentials: "same-origin" });
    if (number !== asked || !answer.ok) return;
    const told: Checked = await answer.json();
    says.replaceChildren(...told.problems.map((each) => {
      const line = element("button", "problem") as HTMLButtonElement;
      line.type = "button";
      line.textContent = each.line > 0 ? `line ${each.line}: ${each.text}` : each.text;
      line.addEventListener("click", () => select(each.line));
      return line;
    }));
    if (told.problems.length === 0) says.append(Object.assign(element("p", "good"), { textContent: "✓ It can be tried and applied." }));
    const drawing = document.querySelector("[data-drawing]");
    if (drawing && told.picture !== "") {
      const parsed = new DOMParser().parseFromString(told.picture, "image/svg+xml").documentElement;
      if (parsed.localName === "svg") drawing.replaceChildren(document.importNode(parsed, true));
      drawing.closest<HTMLElement>("section")?.removeAttribute("hidden");
    }
  }

  function select(line: number): void {
    const lines = field.value.split("\n");
    const start = lines.slice(0, Math.max(0, line - 1)).reduce((sum, each) => sum + each.length + 1, 0);
    field.focus();
    field.setSelectionRange(start, start + (lines[line - 1]?.length ?? 0));
  }
})();
