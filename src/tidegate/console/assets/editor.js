"use strict";
(() => {
    const found = document.querySelector("textarea[data-check]");
    const written = document.getElementById("words");
    if (!found || !written)
        return;
    const field = found;
    const words = JSON.parse(written.textContent ?? "{}");
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
    let waiting;
    let asked = 0;
    field.addEventListener("input", () => { offer(); later(); });
    field.addEventListener("blur", () => setTimeout(hide, 150));
    field.addEventListener("keydown", (event) => {
        if (event.key === " " && event.ctrlKey) {
            event.preventDefault();
            offer(true);
            return;
        }
        if (choices.hidden)
            return;
        switch (event.key) {
            case "ArrowDown":
                move(1);
                break;
            case "ArrowUp":
                move(-1);
                break;
            case "Enter":
            case "Tab":
                take(choices.children[chosen]?.textContent ?? "");
                break;
            case "Escape":
                hide();
                break;
            default: return;
        }
        event.preventDefault();
    });
    function element(name, kind) {
        const made = document.createElement(name);
        made.className = kind;
        return made;
    }
    // -- completion ------------------------------------------------------------------------------------------------------
    function before() {
        const text = field.value.slice(0, field.selectionStart);
        return text.slice(text.lastIndexOf("\n") + 1);
    }
    function begun() {
        return /[\w:.@/+#-]*$/.exec(before())?.[0] ?? "";
    }
    function candidates() {
        const line = before();
        const key = /^\s*(?:- )?(\w+):/.exec(line)?.[1];
        if (key === undefined)
            return words.keys.map((each) => `${each}: `);
        return words.values[key] ?? words.names;
    }
    function offer(all = false) {
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
    function move(by) {
        const count = choices.children.length;
        if (count === 0)
            return;
        chosen = (chosen + by + count) % count;
        [...choices.children].forEach((each, at) => each.setAttribute("aria-selected", String(at === chosen)));
        field.setAttribute("aria-activedescendant", `choice-${chosen}`);
    }
    function take(text) {
        field.setRangeText(text, field.selectionStart - begun().length, field.selectionStart, "end");
        hide();
        later();
    }
    function hide() {
        choices.hidden = true;
        field.setAttribute("aria-expanded", "false");
        field.removeAttribute("aria-activedescendant");
    }
    // -- what the node says of it ----------------------------------------------------------------------------------------
    function later() {
        clearTimeout(waiting);
        waiting = setTimeout(check, 700);
    }
    async function check() {
        const number = ++asked;
        const form = field.form;
        const value = (name) => form.elements.namedItem(name)?.value ?? "";
        const body = new URLSearchParams({ id: field.dataset.id || value("id"), version: value("version"), body: field.value });
        const answer = await fetch(field.dataset.check, { method: "POST", body, credentials: "same-origin" });
        if (number !== asked || !answer.ok)
            return;
        const told = await answer.json();
        says.replaceChildren(...told.problems.map((each) => {
            const line = element("button", "problem");
            line.type = "button";
            line.textContent = each.line > 0 ? `line ${each.line}: ${each.text}` : each.text;
            line.addEventListener("click", () => select(each.line));
            return line;
        }));
        if (told.problems.length === 0)
            says.append(Object.assign(element("p", "good"), { textContent: "✓ It can be tried and applied." }));
        const drawing = document.querySelector("[data-drawing]");
        if (drawing && told.picture !== "") {
            const parsed = new DOMParser().parseFromString(told.picture, "image/svg+xml").documentElement;
            if (parsed.localName === "svg")
                drawing.replaceChildren(document.importNode(parsed, true));
            drawing.closest("section")?.removeAttribute("hidden");
        }
    }
    function select(line) {
        const lines = field.value.split("\n");
        const start = lines.slice(0, Math.max(0, line - 1)).reduce((sum, each) => sum + each.length + 1, 0);
        field.focus();
        field.setSelectionRange(start, start + (lines[line - 1]?.length ?? 0));
    }
})();
