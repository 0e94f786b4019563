// Line charts and bars, as SVG. They have a text for those who do not see them.

import { h, s } from "./dom.js";
import * as f from "./format.js";

const LEFT = 56;
const BOTTOM = 22;
const DATE_LINE = 12; // pixels from a clock time to the date below it

const steps = (max) => {
  const power = 10 ** Math.floor(Math.log10(max));
  return [1, 2, 5, 10].map((factor) => factor * power).find((step) => max / step <= 4) ?? power * 10;
};

// A time at an axis. One that is not of today has its date in a second line.
export const timeTick = (ms, now, attributes) =>
  s(
    "text",
    { class: "tick", ...attributes },
    f.time(ms),
    f.day(ms) !== f.day(now) && s("tspan", { x: attributes.x, dy: DATE_LINE }, f.day(ms)),
  );

// Values over the last half minute, and up to two minutes once there are so many; points are {at, value}.
export function rateChart(width, points, { label, format = f.rate, height = 170 }) {
  const now = points.length ? points.at(-1).at : 0;
  const spanMs = Math.min(120_000, Math.max(30_000, now - (points[0]?.at ?? now)));
  const top = Math.max(1, ...points.map((point) => point.value ?? 0));
  const step = steps(top);
  const max = Math.ceil(top / step) * step;
  const x = (at) => LEFT + ((width - LEFT - 8) * (at - now + spanMs)) / spanMs;
  const y = (value) => 8 + (height - BOTTOM - 8) * (1 - value / max);
  const known = points.filter((point) => point.value !== null && point.at >= now - spanMs);
  const line = known.map((point, index) => `${index ? "L" : "M"}${x(point.at).toFixed(1)} ${y(point.value).toFixed(1)}`);
  const area = known.length
    ? `${line.join("")}L${x(known.at(-1).at).toFixed(1)} ${y(0)}L${x(known[0].at).toFixed(1)} ${y(0)}Z`
    : "";
  const grid = [];
  for (let value = 0; value <= max + step / 2; value += step) {
    grid.push(s("line", { class: "grid", x1: LEFT, x2: width - 8, y1: y(value), y2: y(value) }));
    grid.push(s("text", { class: "tick", x: LEFT - 8, y: y(value) + 4, "text-anchor": "end" }, format(value)));
  }
  const last = known.at(-1);
  return s(
    "svg",
    {
      class: "chart",
      viewBox: `0 0 ${width} ${height}`,
      width,
      height: height,
      role: "img",
      "aria-label": last ? `${label}: now ${format(last.value)}` : `${label}: no figures yet`,
    },
    grid,
    ...[1, 0.5, 0].map((part) =>
      s(
        "text",
        { class: "tick", x: x(now - part * spanMs), y: height - 5, "text-anchor": part === 1 ? "start" : part ? "middle" : "end" },
        part ? `${Math.round((part * spanMs) / 1000)} s ago` : "now",
      ),
    ),
    s("path", { class: "area", d: area }),
    s("path", { class: "stroke", d: line.join("") }),
    last && s("circle", { class: "dot", cx: x(last.at), cy: y(last.value), r: 3 }),
  );
}

// Event time over the wall clock: the band of the watermark, the writers, and where both clocks agree. `past` ends with
// what holds now.
export function timeChart(width, { past, writers, now }) {
  const points = past.filter((point) => point.wall_ms <= now);
  const all = [...points.flatMap((point) => [point.lower, point.upper]), ...writers.flatMap((w) => w.points.map((p) => p.time))];
  const walls = [...points.map((point) => point.wall_ms), ...writers.flatMap((w) => w.points.map((p) => p.at))];
  const from = Math.min(...walls, now - 30_000);
  const isWall = all.some((time) => Math.abs(time - now) < 30 * 86_400_000);
  const low = Math.min(...all, ...(isWall ? [from] : []));
  const high = Math.max(...all, ...(isWall ? [now] : []));
  const ticks = [0, 0.5, 1].map((part) => low + (high - low) * part);
  const left = LEFT + (ticks.some((tick) => f.isTime(tick) && f.day(tick) !== f.day(now)) ? 24 : 12); // a date is wider
  const bottom = f.day(from) === f.day(now) ? BOTTOM : BOTTOM + DATE_LINE;
  const height = 258 + bottom;
  const x = (wall) => left + ((width - left - 12) * (wall - from)) / Math.max(1, now - from);
  const y = (time) => 10 + (height - bottom - 18) * (1 - (time - low) / Math.max(1, high - low));
  const path = (list) => list.map(([a, b], i) => `${i ? "L" : "M"}${x(a).toFixed(1)} ${y(b).toFixed(1)}`).join("");
  const lower = points.map((point) => [point.wall_ms, point.lower]);
  const upper = points.map((point) => [point.wall_ms, point.upper]);
  return s(
    "svg",
    {
      class: "chart time",
      viewBox: `0 0 ${width} ${height}`,
      width,
      height,
      role: "img",
      "aria-label": "Event time over the wall clock: the watermark and the times that writers have noted",
    },
    ticks.map((tick) => [
      s("line", { class: "grid", x1: left, x2: width - 12, y1: y(tick), y2: y(tick) }),
      f.isTime(tick)
        ? timeTick(tick, now, { x: left - 6, y: y(tick) + 4, "text-anchor": "end" })
        : s("text", { class: "tick", x: left - 6, y: y(tick) + 4, "text-anchor": "end" }, f.count(tick)),
    ]),
    [0, 0.5, 1].map((part) =>
      timeTick(from + (now - from) * part, now, {
        x: x(from + (now - from) * part),
        y: height - bottom + BOTTOM - 5,
        "text-anchor": part === 0 ? "start" : part === 1 ? "end" : "middle",
      }),
    ),
    isWall && s("path", { class: "clock", d: path([[from, from], [now, now]]) }),
    points.length > 1 && s("path", { class: "band", d: `${path(upper)}${path([...lower].reverse()).replace("M", "L")}Z` }),
    s("path", { class: "lower", d: path(lower) }),
    writers.map((writer) =>
      s(
        "path",
        { class: `writer${writer.holds ? " holds" : ""}`, d: path(writer.points.map((p) => [p.at, p.time])) },
        s("title", {}, writer.name),
      ),
    ),
    writers.filter((writer) => writer.points.length).map((writer) => {
      const end = writer.points.at(-1);
      return s("circle", { class: `writer-dot${writer.holds ? " holds" : ""}`, cx: x(end.at), cy: y(end.time), r: 3.5 }, s("title", {}, writer.name));
    }),
  );
}

export function bars(rows, { label }) {
  const max = Math.max(1, ...rows.map((row) => row.value));
  return h(
    "div",
    { class: "bars", role: "img", "aria-label": label },
    rows.map((row) =>
      h(
        "div",
        { class: "bar-row" },
        h("span", { class: "bar-label" }, row.label),
        s(
          "svg",
          { class: "bar", viewBox: "0 0 100 8", preserveAspectRatio: "none", "aria-hidden": "true" },
          s("rect", { width: row.value ? Math.max(0.6, (100 * row.value) / max) : 0, height: 8, rx: 1 }),
        ),
        h("span", { class: "bar-value" }, f.count(row.value)),
      ),
    ),
  );
}

export const meter = (part, title, { warns = false } = {}) =>
  s(
    "svg",
    { class: `meter${warns && part > 0.9 ? " full" : ""}`, viewBox: "0 0 100 6", preserveAspectRatio: "none", role: "img", "aria-label": title },
    s("rect", { class: "meter-back", width: 100, height: 6 }),
    part > 0 && s("rect", { class: "meter-fill", width: Math.max(2, Math.min(100, part * 100)), height: 6 }),
  );
