// What all pages share: the bar at the top, the banner, messages, dialogs, and small parts of pages.

import { ApiError, send } from "./api.js";
import { h, morph } from "./dom.js";

const THEMES = { system: "Auto", light: "Light", dark: "Dark" };
const stored = () => {
  try {
    return localStorage.getItem("penstock-theme") ?? "system";
  } catch {
    return "system"; // storage may be forbidden
  }
};

export function applyTheme(theme = stored()) {
  if (theme === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
}

function nextTheme() {
  const names = Object.keys(THEMES);
  const theme = names[(names.indexOf(stored()) + 1) % names.length];
  try {
    localStorage.setItem("penstock-theme", theme);
  } catch {
    // then it lasts as long as the page
  }
  applyTheme(theme);
  return theme;
}

export function topBar(session, path, signOut) {
  const link = (href, text) =>
    h("a", { href, "aria-current": path.startsWith(href.slice(1, 7)) ? "page" : undefined }, text);
  const themeButton = h(
    "button",
    {
      class: "quiet",
      type: "button",
      "aria-label": `Colours: ${THEMES[stored()] ?? "Auto"}`,
      title: "Colours: those of the system, light or dark",
      onclick: (event) => {
        const label = THEMES[nextTheme()];
        event.currentTarget.textContent = label;
        event.currentTarget.setAttribute("aria-label", `Colours: ${label}`);
      },
    },
    THEMES[stored()] ?? "Auto",
  );
  return h(
    "div",
    { class: "bar-inner" },
    h("a", { class: "brand", href: "#/streams" }, h("img", { src: "/console/static/icon.svg", alt: "", width: 22, height: 22 }), "Penstock"),
    session &&
      h(
        "nav",
        { "aria-label": "Pages" },
        link("#/streams", "Streams"),
        link("#/health", "Health"),
        session.cluster && link("#/cluster", "Cluster"),
        session.manages_users && link("#/users", "Users"),
      ),
    h(
      "div",
      { class: "bar-end" },
      themeButton,
      session && h("span", { class: "who", title: session.anonymous ? "This server has no users" : "Signed in" }, session.user),
      session && !session.anonymous && h("button", { class: "quiet", type: "button", onclick: signOut }, "Sign out"),
    ),
  );
}

export function banner(text) {
  morph(document.getElementById("banner"), text ? h("p", { class: "banner" }, h("span", { class: "spinner", "aria-hidden": "true" }), text) : null);
}

export function toast(text, kind = "good") {
  const note = h("p", { class: `toast ${kind}` }, text);
  const box = document.getElementById("toasts");
  box.append(note);
  while (box.childElementCount > 3) box.firstElementChild.remove();
  setTimeout(() => note.remove(), 6000);
}

// A modal dialog makes the page behind it inert, so none outlives its page.
export function closeDialogs() {
  for (const dialog of document.querySelectorAll("dialog")) {
    dialog.close();
    dialog.remove();
  }
}

// A dialog with a form. submit(values) sends the change; an error is shown, and the dialog stays open.
export function ask({ title, text, fields = [], confirm, danger = false, action, submit }) {
  const opener = document.activeElement;
  const around = opener.closest("tr, section");
  const problem = h("p", { class: "problem", role: "alert" });
  const inputs = new Map();
  const labelled = fields.map((field) => {
    const input =
      field.options === undefined
        ? h("input", { id: `d-${field.name}`, name: field.name, value: field.value ?? "", type: field.type ?? "text", required: field.required !== false, autocomplete: "off", spellcheck: "false", inputmode: field.inputmode, placeholder: field.placeholder })
        : h("select", { id: `d-${field.name}`, name: field.name }, field.options.map(([value, label]) => h("option", { value, selected: value === field.value }, label)));
    inputs.set(field.name, input);
    return h("p", { class: "field" }, h("label", { for: `d-${field.name}` }, field.label), input, field.hint && h("small", {}, field.hint));
  });
  const typed = confirm && h("input", { id: "d-confirm", autocomplete: "off", spellcheck: "false", "aria-describedby": "d-confirm-text" });
  const button = h("button", { class: danger ? "danger" : "primary", type: "submit", disabled: Boolean(confirm) }, action);
  if (typed) typed.oninput = () => (button.disabled = typed.value !== confirm);
  const form = h(
    "form",
    { method: "dialog" },
    h("h2", { id: "d-title" }, title),
    text && h("p", {}, text),
    labelled,
    confirm && h("p", { class: "field" }, h("label", { for: "d-confirm" }, "Type the name of the stream to confirm"), typed, h("small", { id: "d-confirm-text" }, confirm)),
    problem,
    h("p", { class: "buttons" }, h("button", { type: "button", onclick: closeDialogs }, "Cancel"), button),
  );
  form.onsubmit = async (event) => {
    event.preventDefault();
    button.disabled = true;
    problem.textContent = "";
    try {
      const values = Object.fromEntries([...inputs].map(([name, input]) => [name, input.value.trim()]));
      const answer = await submit({ ...values, confirm: typed?.value });
      if (dialog.isConnected) closeDialogs();
      if (!opener.isConnected) around?.querySelector("button")?.focus(); // what was changed took its button with it
      toast(answer?.message ?? "Done");
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      if (!dialog.isConnected && error.status !== 401) toast(error.message, "bad"); // its page was left meanwhile
      problem.textContent = error.message;
      button.disabled = false;
    }
  };
  const dialog = h("dialog", { "aria-labelledby": "d-title" }, form);
  dialog.onclose = () => dialog.remove();
  document.body.append(dialog);
  dialog.showModal();
  (typed && !fields.length ? typed : form.querySelector("input, select"))?.focus();
}

// The width of a picture in a card that has a share of the page.
export function pictureWidth(main, columns = 1) {
  const style = getComputedStyle(main);
  const inner = main.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
  return Math.max(240, Math.floor((inner - 16 * (columns - 1)) / columns) - 42);
}

export const change = (path, body) => send(path, body);
export const pill = (text, kind = "") => h("span", { class: `pill ${kind}` }, text);
export const card = (title, ...content) => h("section", { class: "card" }, title && h("h2", {}, title), ...content);
export const tile = (label, value, note) =>
  h("div", { class: "tile" }, h("dt", {}, label), h("dd", {}, value, note && h("small", {}, note)));
export const legend = (items, note) =>
  h("p", { class: "legend" }, items.map(([kind, text]) => h("span", { class: "item" }, h("span", { class: `swatch ${kind}` }), text)), note && h("span", {}, note));
export const empty = (text) => h("p", { class: "empty" }, text);

export function table(label, columns, rows) {
  return h(
    "div",
    { class: "table-wrap" },
    h(
      "table",
      { "aria-label": label },
      h("thead", {}, h("tr", {}, columns.map((column) => h("th", { scope: "col", class: column.number ? "number" : undefined }, column.title)))),
      h(
        "tbody",
        {},
        rows.map((row) =>
          h("tr", { "data-key": row.key }, columns.map((column, index) => h(index ? "td" : "th", { scope: index ? undefined : "row", class: column.number ? "number" : undefined, "data-label": column.title }, row.cells[index]))),
        ),
      ),
    ),
  );
}
