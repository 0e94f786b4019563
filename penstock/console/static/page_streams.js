// All streams that the user may read, fifty at a time.

import { get, repeat } from "./api.js";
import { h, morph } from "./dom.js";
import * as f from "./format.js";
import { ask, change, empty, pill, table } from "./shell.js";

const href = (name) => `#/stream/${name.split("/").map(encodeURIComponent).join("/")}`;

function createDialog() {
  ask({
    title: "Create a stream",
    fields: [
      { name: "name", label: "Name", placeholder: "scope/name" },
      { name: "segments", label: "Segments", value: "1", inputmode: "numeric" },
      {
        name: "retention",
        label: "Retention",
        options: [["unlimited", "Unlimited"], ["time", "By time (seconds)"], ["size", "By size (bytes)"], ["consumption", "Until consumed"]],
      },
      { name: "limit", label: "Limit of the retention", required: false, inputmode: "numeric", hint: "Seconds or bytes, where the retention needs them." },
    ],
    action: "Create",
    submit: async ({ name, segments, retention, limit }) => {
      const answer = await change("streams", { name, segments: Number(segments), retention, limit: limit === "" ? null : Number(limit) });
      location.hash = href(name);
      return answer;
    },
  });
}

export function streamsPage({ session, main, signal, params, failed }) {
  document.title = "Streams · Penstock";
  const asked = { filter: params.get("filter") ?? "", page: Number(params.get("page") ?? 1) || 1, order: params.get("order") ?? "name" };
  let answer = null;
  let timer;
  const show = () => morph(main, view());
  const load = async () => {
    answer = await get("streams", { filter: asked.filter, page: String(asked.page), order: asked.order }, signal);
    asked.page = answer.page;
    show();
  };
  const update = (changes) => {
    Object.assign(asked, changes);
    const search = new URLSearchParams(Object.entries(asked).filter(([name, value]) => value !== "" && !(name === "page" && value === 1) && value !== "name").map(([name, value]) => [name, String(value)]));
    history.replaceState(null, "", `#/streams${search.size ? `?${search}` : ""}`);
    clearTimeout(timer);
    timer = setTimeout(() => load().catch(() => {}), 120);
  };

  const row = (stream) => ({
    key: stream.name,
    cells: [
      h("a", { href: href(stream.name) }, stream.name),
      stream.state === "sealed" ? pill("sealed", "muted") : pill("active", "good"),
      f.count(stream.segments),
      f.count(stream.events),
      f.size(stream.size_bytes),
      f.rate(stream.rate?.events),
      stream.rate ? f.size(stream.rate.bytes) : "–",
      stream.retention,
    ],
  });
  const columns = [
    { title: "Stream" },
    { title: "State" },
    { title: "Segments", number: true },
    { title: "Events", number: true },
    { title: "Size", number: true },
    { title: "Events/s", number: true },
    { title: "Bytes/s", number: true },
    { title: "Retention" },
  ];
  const pager = () => {
    const first = (answer.page - 1) * 50;
    return h(
      "nav",
      { class: "pager", "aria-label": "Pages of streams" },
      h("button", { type: "button", disabled: answer.page <= 1, onclick: () => update({ page: answer.page - 1 }) }, "Previous"),
      h("span", {}, `${f.count(first + 1)}–${f.count(first + answer.streams.length)} of ${f.count(answer.found)}`),
      h("button", { type: "button", disabled: answer.page >= answer.pages, onclick: () => update({ page: answer.page + 1 }) }, "Next"),
    );
  };
  const view = () => [
    h(
      "div",
      { class: "title-row" },
      h("h1", {}, "Streams"),
      answer && h("span", { class: "muted" }, f.count(answer.total)),
      h("span", { class: "grow" }),
      h("label", { class: "sr", for: "filter" }, "Filter by name"),
      h("input", { id: "filter", type: "search", placeholder: "Filter by name", value: asked.filter, spellcheck: "false", oninput: (event) => update({ filter: event.target.value.trim(), page: 1 }) }),
      h("label", { class: "sr", for: "order" }, "Order"),
      h("select", { id: "order", onchange: (event) => update({ order: event.target.value, page: 1 }) }, h("option", { value: "name", selected: asked.order === "name" }, "By name"), h("option", { value: "rate", selected: asked.order === "rate" }, "Busiest first")),
      session.administers_any && h("button", { class: "primary", type: "button", onclick: createDialog }, "Create stream"),
    ),
    answer === null
      ? empty("Loading…")
      : answer.streams.length
        ? [table("Streams", columns, answer.streams.map(row)), answer.pages > 1 && pager()]
        : empty(answer.total ? "No stream has this in its name." : "There is no stream that you may read."),
  ];
  show();
  repeat(2000, signal, load, failed);
}
