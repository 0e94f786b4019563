// The picture of a stream's segments: key space from top to bottom, time from left to right.
//
// The store records the order of splits and merges; when they were is known from the events around them. Epochs last
// for seconds or for weeks, so the time axis is compressed: each epoch has at least some pixels.

import { timeTick } from "./charts.js";
import { s } from "./dom.js";
import * as f from "./format.js";

const HEIGHT = 240;
const LEFT = 34;
const TOP = 8;
const BOTTOM = 34;
const EPOCH_WIDTH_MIN = 26;
const LABEL_WIDTH = 76; // of a time, or of the date below it

// When each epoch began: the last change is on record, the others lie between the events before and behind them.
export function epochTimes(picture) {
  const byId = new Map(picture.segments.map((segment) => [segment.id, segment]));
  const epochs = [...new Set(picture.segments.map((segment) => segment.epoch))].sort((a, b) => a - b);
  const times = new Map();
  let before = -Infinity;
  for (const epoch of epochs) {
    const own = picture.segments.filter((segment) => segment.epoch === epoch);
    const ended = own.flatMap((segment) => segment.before.map((id) => byId.get(id)?.last_ms ?? null)).filter((ms) => ms !== null);
    const begun = own.map((segment) => segment.first_ms).filter((ms) => ms !== null);
    const isLast = epoch === epochs.at(-1) && epoch > 0 && picture.scaled_ms !== null;
    let at = isLast ? picture.scaled_ms : ended.length ? Math.max(...ended) : begun.length ? Math.min(...begun) : before;
    if (!Number.isFinite(at)) at = Math.min(...picture.segments.map((segment) => segment.first_ms ?? picture.now_ms));
    at = Math.max(at, before);
    times.set(epoch, at);
    before = at;
  }
  return { epochs, times };
}

export function layout(picture, width) {
  const { epochs, times } = epochTimes(picture);
  const lasts = picture.segments.map((segment) => segment.last_ms ?? 0);
  const end = picture.sealed ? Math.max(times.get(epochs.at(-1)), ...lasts) : picture.now_ms;
  const starts = [...epochs.map((epoch) => times.get(epoch)), end];
  const weights = epochs.map((_, index) => Math.log1p(Math.max(0, starts[index + 1] - starts[index]) / 1000) + 0.5);
  const total = weights.reduce((sum, weight) => sum + weight, 0);
  const inner = Math.max(width - LEFT - 10, epochs.length * EPOCH_WIDTH_MIN);
  const spare = inner - epochs.length * EPOCH_WIDTH_MIN;
  const edges = [LEFT];
  weights.forEach((weight) => edges.push(edges.at(-1) + EPOCH_WIDTH_MIN + (spare * weight) / total));
  const epochOf = new Map(picture.segments.map((segment) => [segment.id, segment.epoch]));
  const shapes = picture.segments.map((segment) => {
    const next = segment.after.map((id) => epochOf.get(id)).filter((epoch) => epoch !== undefined);
    const from = edges[epochs.indexOf(segment.epoch)];
    const to = next.length ? edges[epochs.indexOf(Math.min(...next))] : edges.at(-1);
    const y = TOP + (HEIGHT - TOP - BOTTOM) * segment.low;
    return { segment, x: from, y, width: to - from, height: (HEIGHT - TOP - BOTTOM) * (segment.high - segment.low) };
  });
  return { shapes, edges, starts, width: edges.at(-1) + 10 };
}

export const describe = (segment) =>
  `Segment ${segment.id}, keys ${segment.low.toFixed(4)} to ${segment.high.toFixed(4)}, ` +
  `${segment.active ? "takes events" : "takes no more events"}, ${f.size(segment.size_bytes)}`;

export function segmentPicture(width, picture, { selected, onselect }) {
  const { shapes, edges, starts, width: full } = layout(picture, width);
  const busiest = Math.max(1e-9, ...picture.segments.map((segment) => segment.events_per_s ?? 0));
  const tabbable = shapes.some(({ segment }) => segment.id === selected) ? selected : shapes.at(-1)?.segment.id;
  const move = (event) => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    const index = shapes.findIndex(({ segment }) => String(segment.id) === event.target.dataset.segment);
    if (step && index >= 0) {
      event.preventDefault();
      const next = shapes[Math.min(shapes.length - 1, Math.max(0, index + step))].segment.id;
      onselect(next);
      document.querySelector(`[data-segment="${next}"]`)?.focus();
    } else if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      onselect(Number(event.target.dataset.segment));
    }
  };
  let labelled = -Infinity;
  return s(
    "svg",
    {
      class: "segments",
      viewBox: `0 0 ${full} ${HEIGHT}`,
      width: full,
      height: HEIGHT,
      role: "group",
      "aria-label": "Segments over key space and time; use the arrow keys to go through them",
      onkeydown: move,
    },
    [0, 0.5, 1].map((key) => {
      const y = TOP + (HEIGHT - TOP - BOTTOM) * key;
      return s("text", { class: "tick", x: LEFT - 6, y: y + 4, "text-anchor": "end" }, String(key));
    }),
    shapes.map(({ segment, x, y, width: w, height }) => {
      const heat = segment.active ? 0.22 + 0.5 * Math.min(1, (segment.events_per_s ?? 0) / busiest) : 1;
      return s(
        "g",
        {
          class: `segment${segment.active ? " active" : ""}${segment.id === selected ? " selected" : ""}${segment.truncated ? " truncated" : ""}`,
          "data-segment": segment.id,
          "data-key": `s${segment.id}`,
          tabindex: segment.id === tabbable ? 0 : -1,
          role: "button",
          "aria-pressed": segment.id === selected ? "true" : "false",
          "aria-label": describe(segment),
          onclick: () => onselect(segment.id),
        },
        s("rect", {
          x: x + 1,
          y: y + 1,
          width: Math.max(1, w - 2),
          height: Math.max(1, height - 2),
          rx: Math.min(4, height / 4),
          "fill-opacity": heat.toFixed(2),
        }),
        w > 18 && height > 14
          ? s("text", { class: "segment-id", x: x + w / 2, y: y + height / 2 + 4, "text-anchor": "middle" }, String(segment.id))
          : null,
        s("title", {}, describe(segment)),
      );
    }),
    starts.map((at, index) => {
      const isLast = index === starts.length - 1;
      const tick = s("line", { class: "edge", x1: edges[index], x2: edges[index], y1: HEIGHT - BOTTOM, y2: HEIGHT - BOTTOM + 5 });
      const fits = isLast || (edges[index] - labelled > LABEL_WIDTH && edges.at(-1) - edges[index] > LABEL_WIDTH);
      if (!fits) return tick;
      labelled = edges[index];
      const anchor = index === 0 ? "start" : isLast ? "end" : "middle";
      const attributes = { x: edges[index], y: HEIGHT - 15, "text-anchor": anchor };
      return [tick, isLast && !picture.sealed ? s("text", { class: "tick", ...attributes }, "now") : timeTick(at, picture.now_ms, attributes)];
    }),
  );
}
