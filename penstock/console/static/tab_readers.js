// Who reads a stream and how far they are, and what is being written to it.

import { get, repeat } from "./api.js";
import { meter } from "./charts.js";
import { h, morph } from "./dom.js";
import * as f from "./format.js";
import { card, empty, pill, table } from "./shell.js";

export function readersTab({ signal, failed }, name, body) {
  let answer = null;
  const more = (shown, total) => total > shown && h("p", { class: "muted" }, `${f.count(shown)} of ${f.count(total)} are shown.`);

  const group = (found) => {
    const most = Math.max(1, ...found.readers.map((reader) => reader.behind_bytes));
    return h(
      "section",
      { class: "group", "data-key": found.name },
      h("h3", {}, h("span", { class: "mono" }, found.name), found.finished ? pill("finished", "muted") : found.lag.events === 0 ? pill("caught up", "good") : pill(`${f.plural(found.lag.events, "event")} behind`, "accent")),
      h("p", { class: "muted" }, `${f.size(found.lag.bytes)} unread, the oldest for ${f.seconds(found.lag.seconds)}${found.streams.length > 1 ? `; it reads ${found.streams.length} streams` : ""}${found.owner ? `; owner ${found.owner}` : ""}`),
      found.readers.length
        ? table(
            `Readers of ${found.name}`,
            [{ title: "Reader" }, { title: "Segments" }, { title: "Unread", number: true }, { title: "" }],
            found.readers.map((reader) => ({
              key: reader.name,
              cells: [h("span", { class: "mono" }, reader.name), reader.segments.length > 12 ? f.plural(reader.segments.length, "segment") : reader.segments.join(", ") || "–", f.size(reader.behind_bytes), meter(reader.behind_bytes / most, `${f.size(reader.behind_bytes)} unread`)],
            })),
          )
        : h("p", { class: "muted" }, "It has no readers at the moment."),
      more(found.readers.length, found.readers_total),
    );
  };

  const view = () => {
    if (answer === null) return empty("Loading…");
    return [
      card("Reader groups", answer.groups.length ? answer.groups.map(group) : empty("No reader group that you may see reads this stream."), more(answer.groups.length, answer.groups_total)),
      card(
        "Consumers",
        answer.consumers.length
          ? table(
              "Consumers",
              [{ title: "Consumer" }, { title: "Moved", number: true }, { title: "Not consumed", number: true }],
              answer.consumers.map((consumer) => ({
                key: consumer.name,
                cells: [h("span", { class: "mono" }, consumer.name), consumer.moved_ms === null ? "–" : `${f.seconds(Math.max(0, (answer.now_ms - consumer.moved_ms) / 1000))} ago`, consumer.behind_bytes === null ? "–" : f.size(consumer.behind_bytes)],
              })),
            )
          : empty("No consumer is registered."),
        more(answer.consumers.length, answer.consumers_total),
      ),
      card(
        "Open transactions",
        answer.transactions.length
          ? table(
              "Open transactions",
              [{ title: "Transaction" }, { title: "State" }, { title: "Writer" }, { title: "Owner" }, { title: "Lease left", number: true }],
              answer.transactions.map((found) => ({
                key: found.id,
                cells: [h("span", { class: "mono" }, found.id), pill(found.status, found.status === "prepared" ? "accent" : "good"), found.writer ?? "–", found.owner ?? "–", f.seconds(found.lease_left_s)],
              })),
            )
          : empty("No transaction is open."),
        more(answer.transactions.length, answer.transactions_total),
      ),
      card("Large events under way", answer.large_events.length ? h("ul", { class: "plain" }, answer.large_events.map((size) => h("li", {}, `${f.size(size)} stored so far`))) : empty("No large event is being written.")),
    ];
  };
  morph(body, view());
  repeat(1500, signal, async () => {
    answer = await get("readers", { name }, signal);
    morph(body, view());
  }, failed);
}
