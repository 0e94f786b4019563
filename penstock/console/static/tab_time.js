// The time of a stream: its watermark against the wall clock, and the writers that it waits for.

import { get, repeat } from "./api.js";
import { timeChart } from "./charts.js";
import { h, morph } from "./dom.js";
import * as f from "./format.js";
import { card, empty, legend, pictureWidth, pill, table, tile } from "./shell.js";

const DRAWN_WRITERS = 8;
const POINTS_MAX = 600;

export function timeTab({ main, signal, failed }, name, body) {
  let answer = null;
  let past = null;
  const noted = new Map(); // the times that each writer has noted: as the server has seen them, then as they were seen here

  // Where the watermark stands still, two points are enough: when it came there, and now.
  const remember = () => {
    if (answer.last !== null) {
      const stands = past.length > 1 && past.slice(-2).every((point) => point.lower === answer.last.lower && point.upper === answer.last.upper);
      past = [...(stands ? past.slice(0, -1) : past), { wall_ms: answer.now_ms, ...answer.last }].slice(-POINTS_MAX);
    }
    for (const writer of answer.writers) {
      const points = noted.get(writer.writer) ?? (writer.past ?? []).map(([at, time]) => ({ at, time }));
      points.push({ at: answer.now_ms, time: writer.time });
      noted.set(writer.writer, points.slice(-POINTS_MAX));
    }
    for (const writer of noted.keys()) if (!answer.writers.some((row) => row.writer === writer)) noted.delete(writer);
  };

  const behind = (time) => (Math.abs(answer.now_ms - time) < 30 * 86_400_000 ? f.seconds(Math.max(0, (answer.now_ms - time) / 1000)) : "–");
  const stateOf = (writer) =>
    !writer.open ? pill("closed", "muted") : writer.holds_back ? pill("holds time back", "warn") : writer.slowest && answer.writers.length > 1 ? pill("slowest", "accent") : pill("open", "good");

  const view = () => {
    if (answer === null) return empty("Loading…");
    if (answer.last === null && !answer.writers.length) return card(null, empty("No writer has noted time in this stream yet."));
    const holder = answer.writers.find((writer) => writer.holds_back) ?? answer.writers.find((writer) => writer.slowest);
    const drawn = answer.writers.slice(0, DRAWN_WRITERS).map((writer) => ({ name: writer.writer, holds: writer.holds_back, points: noted.get(writer.writer) ?? [] }));
    const width = pictureWidth(main);
    return [
      h(
        "dl",
        { class: "tiles" },
        tile("Watermark", answer.last ? f.noted(answer.last.lower) : "none yet"),
        tile("Behind the clock", answer.last ? behind(answer.last.lower) : "–"),
        tile("Writers that note time", f.count(answer.writers_total)),
        tile(holder?.holds_back ? "Held back by" : "Slowest writer", holder ? holder.writer : "–", holder && ` ${behind(holder.time)} behind`),
      ),
      card(
        "Event time over the wall clock",
        past.length || drawn.some((writer) => writer.points.length) ? timeChart(width, { past, writers: drawn, now: answer.now_ms }) : empty("There are no watermarks yet."),
        legend(
          [
            ["line lower", "watermark: all writers are past it"],
            ["band", "up to the fastest writer"],
            ["line writer", "each writer"],
            ...(drawn.some((writer) => writer.holds) ? [["line holds", "the writer that holds time back"]] : []),
            ["line clock", "wall clock"],
          ],
          answer.writers_total > drawn.length && `${f.count(drawn.length)} of ${f.count(answer.writers_total)} writers drawn: the slowest.`,
        ),
      ),
      card(
        "Writers",
        answer.writers.length
          ? table(
              "Writers that note time, the slowest first",
              [{ title: "Writer" }, { title: "State" }, { title: "Time noted" }, { title: "Behind", number: true }, { title: "Silent for", number: true }],
              answer.writers.map((writer) => ({ key: writer.writer, cells: [h("span", { class: "mono" }, writer.writer), stateOf(writer), f.noted(writer.time), behind(writer.time), f.seconds(writer.silent_s)] })),
            )
          : empty("No writer notes time at the moment."),
        h("p", { class: "muted hint" }, `If a writer is silent for ${f.seconds(answer.timeout_s)}, it no longer holds time back.`),
      ),
    ];
  };

  morph(body, view());
  repeat(1000, signal, async () => {
    answer = await get("time", { name, past: past === null ? "1" : "0" }, signal);
    past ??= answer.past;
    remember();
    morph(body, view());
  }, failed);
}
