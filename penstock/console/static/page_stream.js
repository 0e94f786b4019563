// One stream: its figures, its segments, and the tabs for time, readers and events.

import { get, repeat } from "./api.js";
import { rateChart } from "./charts.js";
import { h, morph } from "./dom.js";
import * as f from "./format.js";
import { eventsTab, parseTime } from "./tab_events.js";
import { readersTab } from "./tab_readers.js";
import { timeTab } from "./tab_time.js";
import { segmentPicture } from "./segments.js";
import { ask, card, change, empty, legend, pictureWidth, pill, table, tile } from "./shell.js";

const TABS = [["overview", "Overview"], ["time", "Time"], ["readers", "Readers"], ["events", "Events"]];
const POINTS_MAX = 150;

function truncateDialog(stream) {
  ask({
    title: `Truncate ${stream.name}`,
    text: "The events before the position are deleted for good.",
    fields: [{ name: "to", label: "Position", hint: "A time (12:30, 2026-11-20 12:00, milliseconds since 1970), a cut, or tail for all events." }],
    confirm: stream.name,
    danger: true,
    action: "Delete events",
    submit: ({ to, confirm }) => change("truncate", { name: stream.name, to: String(parseTime(to.trim()) ?? to.trim()), confirm }),
  });
}

function sealDialog(stream) {
  ask({
    title: `Seal ${stream.name}`,
    text: "A sealed stream accepts no more events. It cannot be opened again.",
    confirm: stream.name,
    danger: true,
    action: "Seal stream",
    submit: ({ confirm }) => change("seal", { name: stream.name, confirm }),
  });
}

function splitDialog(stream, segment) {
  ask({
    title: `Split segment ${segment.id}`,
    text: `Its keys, ${segment.low.toFixed(4)} to ${segment.high.toFixed(4)}, are divided evenly among new segments.`,
    fields: [{ name: "parts", label: "Into so many", value: "2", inputmode: "numeric" }],
    action: "Split",
    submit: ({ parts }) => {
      const number = Math.max(1, Math.min(1000, Math.round(Number(parts)) || 0));
      const edge = (index) => (index === number ? segment.high : segment.low + ((segment.high - segment.low) * index) / number);
      const ranges = Array.from({ length: number }, (_, index) => [edge(index), edge(index + 1)]);
      return change("scale", { name: stream.name, seal: [segment.id], ranges });
    },
  });
}

function mergeDialog(stream, segment, other) {
  ask({
    title: `Merge segments ${segment.id} and ${other.id}`,
    text: "Events with their keys go to one new segment from now on.",
    action: "Merge",
    submit: () =>
      change("scale", {
        name: stream.name,
        seal: [segment.id, other.id],
        ranges: [[Math.min(segment.low, other.low), Math.max(segment.high, other.high)]],
      }),
  });
}

export function streamPage(context, name, tab) {
  const { main, signal, failed } = context;
  document.title = `${name} · Penstock`;
  const state = { stream: null, picture: null, points: [], selected: null, tab };
  const base = `#/stream/${name.split("/").map(encodeURIComponent).join("/")}`;
  const body = h("div", { class: "tab-body" });
  const head = h("div", {});
  main.replaceChildren(head, body);
  const show = () => {
    morph(head, header());
    if (tab === "overview") morph(body, overview());
  };

  const header = () => {
    const { stream } = state;
    const mayChange = stream?.may.includes("admin");
    return [
      h("p", { class: "crumbs" }, h("a", { href: "#/streams" }, "Streams")),
      h(
        "div",
        { class: "title-row" },
        h("h1", {}, name),
        stream && (stream.state === "sealed" ? pill("sealed", "muted") : pill("active", "good")),
        h("span", { class: "grow" }),
        mayChange &&
          h("div", { class: "actions" }, h("button", { type: "button", onclick: () => truncateDialog(stream) }, "Truncate…"), stream.state === "active" && h("button", { type: "button", onclick: () => sealDialog(stream) }, "Seal…")),
      ),
      h("nav", { class: "tabs", "aria-label": "Parts of the stream" }, TABS.map(([key, label]) => h("a", { href: `${base}/${key}`, "aria-current": key === tab ? "page" : undefined }, label))),
    ];
  };

  const selection = () => {
    const segment = state.picture.segments.find((found) => found.id === state.selected);
    if (segment === undefined) return h("p", { class: "muted hint" }, "Select a segment to see its figures.");
    const mayScale = state.stream?.may.includes("admin") && segment.active;
    const next = state.picture.segments.find((found) => found.active && found.low === segment.high);
    return h(
      "div",
      { class: "selection" },
      h("strong", {}, `Segment ${segment.id}`),
      h("span", {}, `keys ${segment.low.toFixed(4)}–${segment.high.toFixed(4)}`),
      h("span", {}, f.size(segment.size_bytes)),
      segment.first_ms !== null && h("span", {}, `${f.time(segment.first_ms, { withDate: true })} to ${f.timeBeside(segment.last_ms, segment.first_ms)}`),
      segment.active && h("span", {}, `${f.rate(segment.events_per_s)} events/s`),
      !segment.active && pill("takes no more events", "muted"),
      segment.truncated && pill("begins truncated", "muted"),
      mayScale && h("button", { type: "button", onclick: () => splitDialog(state.stream, segment) }, "Split…"),
      mayScale && next && h("button", { type: "button", onclick: () => mergeDialog(state.stream, segment, next) }, `Merge with ${next.id}…`),
    );
  };

  const segmentTable = () =>
    h(
      "details",
      {},
      h("summary", {}, "The segments as a table"),
      table(
        "Segments",
        [{ title: "Segment" }, { title: "Keys" }, { title: "Follows" }, { title: "Size", number: true }, { title: "First event" }, { title: "State" }],
        [...state.picture.segments].reverse().slice(0, 200).map((segment) => ({
          key: `t${segment.id}`,
          cells: [segment.id, `${segment.low.toFixed(4)}–${segment.high.toFixed(4)}`, segment.before.join(", ") || "–", f.size(segment.size_bytes), f.time(segment.first_ms, { withDate: true }), segment.active ? "active" : "ended"],
        })),
      ),
    );

  const overview = () => {
    const { stream, picture } = state;
    if (stream === null) return empty("Loading…");
    return [
      h(
        "dl",
        { class: "tiles" },
        tile("Events", f.count(stream.events)),
        tile("Size", f.size(stream.size_bytes)),
        tile("Events/s", f.rate(stream.rate?.events), stream.rate && ` ${f.size(stream.rate.bytes)}/s`),
        tile("Segments", f.count(stream.segments), ` epoch ${stream.epoch}`),
        tile("Retention", stream.retention),
        tile("Scaling", stream.scaling),
        stream.owner && tile("Owner", stream.owner),
      ),
      card(
        "Segments over key space and time",
        picture === null
          ? empty("Loading…")
          : [
              picture.omitted > 0 && h("p", { class: "muted" }, `The newest ${f.count(picture.segments.length)} are drawn; ${f.plural(picture.omitted, "older segment")} not.`),
              h("div", { class: "scroll-x", tabindex: -1 }, segmentPicture(pictureWidth(main), picture, { selected: state.selected, onselect: (id) => { state.selected = id; show(); } })),
              legend([["active", "takes events, stronger where more arrive"], ["", "ended by a split or a merge"]], "The time axis is compressed."),
              selection(),
              segmentTable(),
            ],
      ),
      card("Events per second", rateChart(pictureWidth(main), state.points, { label: "Events per second" })),
      card(
        "Positions",
        h("dl", { class: "pairs" }, h("dt", {}, "Head"), h("dd", { class: "mono wrap" }, stream.head), h("dt", {}, "Tail"), h("dd", { class: "mono wrap" }, stream.tail), stream.tags.length ? [h("dt", {}, "Tags"), h("dd", {}, stream.tags.join(", "))] : null),
      ),
    ];
  };

  const gone = (error) =>
    failed(error.kind === "NoSuchStream" ? Object.assign(error, { message: `There is no stream ${name}: it was deleted, or never created.` }) : error);

  repeat(1000, signal, async () => {
    const stream = await get("stream", { name }, signal);
    if (state.stream !== null && stream.uid !== state.stream.uid) state.points = [];
    state.stream = stream;
    state.points = [...state.points, { at: stream.now_ms, value: stream.rate?.events ?? null }].slice(-POINTS_MAX);
    show();
  }, gone);
  if (tab === "overview") {
    repeat(2000, signal, async () => {
      state.picture = await get("segments", { name }, signal);
      show();
    }, gone);
    const resized = new ResizeObserver(() => requestAnimationFrame(() => state.stream && !signal.aborted && show()));
    resized.observe(main);
    signal.addEventListener("abort", () => resized.disconnect());
  } else if (tab === "time") timeTab({ ...context, failed: gone }, name, body);
  else if (tab === "readers") readersTab({ ...context, failed: gone }, name, body);
  else if (tab === "events") eventsTab({ ...context, failed: gone }, name, body);
  show();
}

