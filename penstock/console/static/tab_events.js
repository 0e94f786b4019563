// The events of a stream: as they arrive, or from any position on.

import { ApiError, downloadUrl, get, repeat } from "./api.js";
import { h, morph } from "./dom.js";
import * as f from "./format.js";
import { empty, pill, toast } from "./shell.js";

const ROWS_MAX = 500;
const FOLLOW_MS = 500;
const SCROLLED_PX = 2; // less is rounding
const TYPING_MS = 300; // a pause in which the key filter is applied

// "2026-11-20 12:00", or a time of today; null if it is not written like a time, NaN if there is no such time.
export function parseTime(text, today = new Date()) {
  const clock = /^(\d{1,2}):(\d{2})(?::(\d{2})(?:\.(\d{1,3}))?)?$/.exec(text);
  if (clock) {
    const [, hours, minutes, secs = "0", ms = "0"] = clock;
    if (+hours > 23 || +minutes > 59 || +secs > 59) return NaN;
    return new Date(today.getFullYear(), today.getMonth(), today.getDate(), +hours, +minutes, +secs, +ms.padEnd(3, "0")).getTime();
  }
  const date = /^(\d{4})-(\d{2})-(\d{2})(?:[ T][^@]*)?$/.exec(text); // an @ is of a cut
  if (!date) return null;
  const [, year, month, day] = date;
  if (new Date(Date.UTC(+year, +month - 1, +day)).getUTCDate() !== +day || +month > 12) return NaN; // Date.parse takes 31 February
  return Date.parse(text.replace(/^(\d{4}-\d{2}-\d{2})$/, "$1T00:00").replace(" ", "T"));
}

export function eventsTab({ signal, failed }, name, body) {
  const state = { rows: [], begin: "latest", next: "latest", follow: true, key: "", atTail: false, skippedBytes: 0, skippedEvents: 0, scanned: 0, pretty: true, open: null, detail: null, marked: null, note: "" };
  let turn = 0; // of the position; answers for an older one are dropped
  let loading = -1; // the turn that is being loaded for
  let typing = 0; // the timer of the key filter

  const list = () => body.querySelector(".events");
  const rowButton = (pointer) => list()?.querySelector(`li[data-key="${CSS.escape(pointer ?? "")}"] button`);
  const lastButton = () => list()?.querySelector("li:last-child button");
  const show = () => {
    const hadFocus = body.contains(document.activeElement);
    morph(body, view());
    if (hadFocus && !body.contains(document.activeElement)) lastButton()?.focus({ preventScroll: true }); // its button has gone
    const box = list();
    if (state.follow && box) box.scrollTop = box.scrollHeight;
  };
  const load = async (follow) => {
    const mine = turn;
    const isFirst = state.next === "latest";
    const page = await get("events", { name, start: state.next, key: state.key, follow: follow ? "1" : "0" }, signal);
    if (mine !== turn || follow !== state.follow) return null; // a paused page stays as it is, and asks for these again
    state.next = page.next;
    state.atTail = page.at_tail;
    if (!isFirst) {
      state.skippedBytes += page.skipped_bytes;
      state.skippedEvents += page.skipped_events;
    }
    state.scanned += page.scanned;
    if (page.truncated) state.note = "The position was truncated away; the stream begins later.";
    const known = new Set(state.rows.map((row) => row.pointer));
    const fresh = page.events.filter((row) => !known.has(row.pointer));
    state.rows = [...state.rows, ...fresh].slice(-ROWS_MAX);
    return page;
  };
  const begin = (position, { follow }) => {
    turn += 1;
    Object.assign(state, { rows: [], begin: position, next: position, follow, atTail: false, skippedBytes: 0, skippedEvents: 0, scanned: 0, note: "" });
    show();
  };
  const more = async (before = null) => {
    if (loading === turn) return;
    const mine = turn;
    loading = mine;
    show();
    try {
      // with a filter, pages without a match are passed over
      for (let tries = 0; tries < 20; tries += 1) {
        const page = await load(false);
        if (page === null || page.events.length || page.at_tail) break;
        show();
      }
    } catch (error) {
      if (error.name === "AbortError") return;
      if (!(error instanceof ApiError)) throw error;
      if (error.status === 404 && error.kind === "NoSuchStream") failed(error);
      else if (mine === turn) Object.assign(state, before ?? {}, { note: `${error.message}.` });
    } finally {
      if (loading === mine) loading = -1;
      if (!signal.aborted) show();
    }
  };
  const jump = (text) => {
    const time = parseTime(text);
    if (Number.isNaN(time)) {
      state.note = `There is no such time: ${text}.`;
      show();
      return;
    }
    const position = time === null ? text : String(time);
    state.marked = text.includes("@") && !text.includes(",") ? text : null;
    if (position === "") return;
    const before = { ...state };
    begin(position, { follow: false });
    more(before); // which is shown again if there is no such position
    if (state.marked !== null) openEvent(state.marked);
  };
  const openEvent = async (pointer) => {
    state.open = pointer;
    state.detail = null;
    show();
    try {
      const detail = await get("event", { pointer }, signal);
      if (state.open === pointer) state.detail = detail;
    } catch (error) {
      if (error.name === "AbortError") return;
      if (!(error instanceof ApiError)) throw error;
      if (state.open === pointer) state.detail = { error: error.message };
    }
    show();
  };
  const filter = (key) => {
    clearTimeout(typing);
    if (signal.aborted || key === state.key) return;
    state.key = key;
    begin(state.follow ? "latest" : state.begin, { follow: state.follow });
    if (!state.follow) more();
  };
  const pauseOrFollow = () => {
    if (state.follow) {
      Object.assign(state, { follow: false, atTail: false }); // events may arrive from now on
      show();
    } else begin("latest", { follow: true });
  };

  // The list is at its end whenever it has been drawn, so only a user can have moved it: with a wheel, keys, or fingers.
  const pauseIfScrolledUp = ({ currentTarget: box }) => {
    if (state.follow && box.scrollHeight - box.clientHeight - box.scrollTop > SCROLLED_PX) pauseOrFollow();
  };

  const preview = (row) =>
    row.text === undefined
      ? h("span", { class: "binary" }, `${row.hex.replace(/../g, "$& ")}${row.shown < row.size ? "…" : ""}`)
      : `${row.text}${row.shown < row.size ? "…" : ""}`;
  const eventRow = (row) =>
    h(
      "li",
      { "data-key": row.pointer, class: row.pointer === state.marked ? "marked" : undefined },
      h(
        "button",
        { type: "button", class: `event${row.pointer === state.open ? " open" : ""}`, "aria-expanded": row.pointer === state.open ? "true" : "false", onclick: () => (row.pointer === state.open ? closeEvent() : openAndFocus(row.pointer)) },
        h("span", { class: "event-time" }, f.timeBeside(row.time_ms, Date.now(), { withMs: true })),
        h("span", { class: "event-key", title: row.key ?? "" }, row.key ?? "–"),
        h("span", { class: "event-size" }, f.size(row.size)),
        h("span", { class: "event-text" }, preview(row)),
      ),
    );
  const isDated = () => state.rows.some((row) => f.day(row.time_ms) !== f.day(Date.now()));
  // An event is behind all rows for the Tab key, so it gets the focus, and its row gets it back.
  const openAndFocus = (pointer) => {
    openEvent(pointer);
    body.querySelector(".detail").focus({ preventScroll: true });
  };
  const closeEvent = () => {
    const pointer = state.open;
    state.open = state.detail = null;
    show();
    rowButton(pointer)?.focus();
  };
  const moveFocus = (event) => {
    const buttons = [...event.currentTarget.querySelectorAll("button")];
    const at = buttons.indexOf(document.activeElement);
    const to = { ArrowUp: at - 1, ArrowDown: at + 1, Home: 0, End: buttons.length - 1 }[event.key];
    if (buttons[to] === undefined) return;
    event.preventDefault();
    buttons[to].focus();
  };
  const content = (event) => {
    if (event.text === undefined) return [pill("binary", "muted"), h("pre", { tabindex: 0, "aria-label": "Event" }, f.hexDump(event.hex))];
    const pretty = event.shown === event.size ? f.prettyJson(event.text) : null;
    return [
      pill(pretty === null ? "text" : "JSON", "accent"),
      h("pre", { tabindex: 0, "aria-label": "Event" }, typeof pretty === "string" && state.pretty ? pretty : event.text),
      pretty === f.TOO_LARGE && state.pretty && h("p", { class: "muted" }, "This JSON is too deep or too large to be indented: it is shown as it was written."),
    ];
  };
  const detail = () => {
    const event = state.detail;
    return h(
      "section",
      { class: "detail card", "aria-label": "Event", tabindex: -1 },
      h("div", { class: "title-row" }, h("h2", { class: "mono wrap" }, state.open), h("span", { class: "grow" }), h("button", { type: "button", class: "quiet", onclick: closeEvent }, "Close")),
      event === null
        ? empty("Loading…")
        : event.error
          ? h("p", { class: "problem" }, event.error)
          : [
              h(
                "dl",
                { class: "pairs" },
                h("dt", {}, "Appended"),
                h("dd", {}, f.time(event.time_ms, { withDate: true, withMs: true })),
                h("dt", {}, "Key"),
                h("dd", { class: "mono wrap" }, event.key ?? "–"),
                h("dt", {}, "Size"),
                h("dd", {}, f.size(event.size)),
                event.headers.map(([header, value]) => [h("dt", { class: "mono" }, header), h("dd", { class: "mono wrap" }, value)]),
              ),
              content(event),
              event.shown < event.size && h("p", { class: "muted" }, `The first ${f.size(event.shown)} of ${f.size(event.size)} are shown.`),
              h("p", { class: "buttons" }, h("a", { class: "button", href: downloadUrl(event.pointer), download: "" }, "Download"), h("button", { type: "button", onclick: () => copy(event.pointer) }, "Copy pointer")),
            ],
    );
  };
  const copy = async (text) => {
    try {
      await navigator.clipboard.writeText(text);
      toast("Copied");
    } catch {
      toast("The browser does not allow copying here", "bad");
    }
  };
  const status = () => {
    const parts = [];
    if (state.follow) parts.push("Following the tail.");
    else parts.push(state.atTail ? "This is the tail." : "Paused.");
    if (state.skippedEvents || state.skippedBytes) {
      const what = [state.skippedEvents && f.plural(state.skippedEvents, "event"), state.skippedBytes && f.size(state.skippedBytes)].filter(Boolean).join(" and ");
      parts.push(`${what} passed too quickly to be shown.`);
    }
    if (state.key) parts.push(`The key was searched for in ${f.plural(state.scanned, "event")}.`);
    return [...parts, state.note].filter(Boolean).join(" ");
  };
  const jumpForm = () =>
    h(
      "form",
      {
        class: "jump",
        role: "search",
        onsubmit: (event) => {
          event.preventDefault();
          jump(event.target.elements.position.value.trim());
        },
      },
      h("label", { class: "sr", for: "position" }, "Go to a cut, a time or a pointer"),
      h("input", { id: "position", name: "position", placeholder: "Cut, time or pointer", spellcheck: "false", autocomplete: "off" }),
      h("button", { type: "submit" }, "Go"),
    );
  const view = () => [
    h(
      "div",
      { class: "toolbar" },
      h("button", { type: "button", class: state.follow ? "" : "primary", onclick: pauseOrFollow }, state.follow ? "Pause" : "Follow"),
      h("button", { type: "button", onclick: () => (begin("head", { follow: false }), more()) }, "From the head"),
      jumpForm(),
      h("label", { class: "sr", for: "key" }, "Only keys that contain"),
      h("input", {
        id: "key",
        type: "search",
        placeholder: "Key contains",
        spellcheck: "false",
        oninput: (event) => {
          const key = event.target.value.trim();
          clearTimeout(typing);
          typing = setTimeout(() => filter(key), TYPING_MS);
        },
        onchange: (event) => filter(event.target.value.trim()),
      }),
      h("label", { class: "check" }, h("input", { type: "checkbox", checked: state.pretty, onchange: (event) => ((state.pretty = event.target.checked), show()) }), "Indent JSON"),
    ),
    h("p", { class: "muted status", role: "status" }, status()),
    h(
      "div",
      { class: `events-and-detail${state.open ? " with-detail" : ""}` },
      h(
        "div",
        { class: `card flush${isDated() ? " dated" : ""}` },
        h("div", { class: "event head", "aria-hidden": "true" }, h("span", {}, "Time"), h("span", {}, "Key"), h("span", {}, "Size"), h("span", {}, "Event")),
        state.rows.length
          ? h("ul", { class: "events", "aria-label": "Events", onscroll: pauseIfScrolledUp, onkeydown: moveFocus }, state.rows.map(eventRow))
          : empty(state.follow ? "No event yet. Those that arrive are shown here." : state.atTail ? "There is no event from here on." : loading === turn ? "Loading…" : "No event is shown."),
        !state.follow && !state.atTail && (state.rows.length || loading !== turn) ? h("p", { class: "buttons" }, h("button", { type: "button", onclick: () => more() }, "Next events")) : null,
      ),
      state.open && detail(),
    ),
  ];
  show();
  repeat(FOLLOW_MS, signal, async () => {
    if (!state.follow) return undefined;
    const page = await load(true);
    if (page !== null && (page.events.length || page.skipped_bytes || state.rows.length === 0)) show();
    return page !== null && !page.at_tail ? 50 : undefined;
  }, failed);
}
