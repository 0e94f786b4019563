// The health of the server, and the servers of its cluster.

import { get, repeat } from "./api.js";
import { bars, meter, rateChart } from "./charts.js";
import { h, morph } from "./dom.js";
import * as f from "./format.js";
import { card, empty, pictureWidth, pill, table, tile } from "./shell.js";

const POINTS_MAX = 150;

export function healthPage({ main, signal, failed }) {
  document.title = "Health · Penstock";
  let health = null;
  let points = [];
  const bucket = (index, bounds) => (index < bounds.length ? `≤ ${f.seconds(bounds[index])}` : `> ${f.seconds(bounds.at(-1))}`);
  const syncs = () => {
    const rows = health.syncs.counts.map((value, index) => ({ label: bucket(index, health.syncs.bounds_s), value }));
    const first = rows.findIndex((row) => row.value);
    const last = rows.findLastIndex((row) => row.value);
    return first < 0 ? empty("Nothing was synced yet.") : bars(rows.slice(first, last + 1), { label: "How long syncs took" });
  };
  const lastError = () => health.logged.last_error;
  const troubles = () => Object.entries(health.streams);
  const limits = () =>
    table(
      "Limits",
      [{ title: "Kind" }, { title: "Used", number: true }, { title: "Limit", number: true }, { title: "" }, { title: "Refused", number: true }],
      health.limits.map((limit) => ({
        key: limit.kind,
        cells: [limit.kind.replaceAll("_", " "), f.count(limit.used), limit.limit === null ? "none" : f.count(limit.limit), limit.limit ? meter(limit.used / limit.limit, `${f.count(limit.used)} of ${f.count(limit.limit)}`, { warns: true }) : "", limit.refused ? h("span", { class: "bad" }, f.count(limit.refused)) : "0"],
      })),
    );
  const view = () => {
    if (health === null) return [h("div", { class: "title-row" }, h("h1", {}, "Health")), empty("Loading…")];
    const isGood = health.status !== "failing";
    return [
      h("div", { class: "title-row" }, h("h1", {}, "Health"), pill(isGood ? "the server works" : "the server fails", isGood ? "good" : "bad"), h("span", { class: "grow" }), h("span", { class: "muted" }, `version ${health.version}`)),
      health.reason && h("p", { class: "problem", role: "alert" }, health.reason),
      health.detailed
        ? [
            h(
              "dl",
              { class: "tiles even" },
              tile("Sync, median", health.syncs.p50_s === null ? "–" : `≤ ${f.seconds(health.syncs.p50_s)}`),
              tile("Sync, 99 %", health.syncs.p99_s === null ? "–" : `≤ ${f.seconds(health.syncs.p99_s)}`, ` of ${f.plural(health.syncs.count, "sync")}`),
              tile("Connections", f.count(health.connections.flight ?? 0), " Flight"),
              tile("HTTP", f.count(health.connections.http ?? 0), ` ${f.count(health.connections.websocket ?? 0)} WebSockets`),
              tile("Failed logins", f.count(health.failed_logins)),
              tile("Errors logged", health.logged.errors ? h("span", { class: "bad" }, f.count(health.logged.errors)) : "0", lastError() && ` last ${f.timeBeside(lastError().at_ms, health.now_ms)}`),
              tile("Warnings logged", f.count(health.logged.warnings)),
              tile("Sent to readers", f.size(health.sent_bytes)),
            ),
            lastError() && card("Last error", h("p", { class: "mono wrap" }, lastError().text)),
            h("div", { class: "columns" }, card("Events appended per second", rateChart(pictureWidth(main, main.clientWidth > 900 ? 2 : 1), points, { label: "Events appended per second", height: 260 })), card("How long syncs took", syncs())),
            card("Streams in trouble", troubles().length ? table("Streams in trouble", [{ title: "Stream" }, { title: "What could not be done" }], troubles().map(([stream, reason]) => ({ key: stream, cells: [stream, reason] }))) : empty("Maintenance works for all streams.")),
            card("Limits", limits()),
          ]
        : card(null, h("p", {}, "The figures of the server are for users who may read all streams."), troubles().length ? h("ul", {}, troubles().map(([stream, reason]) => h("li", {}, `${stream}: ${reason}`))) : null),
    ];
  };
  morph(main, view());
  repeat(1000, signal, async () => {
    health = await get("health", {}, signal);
    if (health.detailed) points = [...points, { at: health.now_ms, value: health.rate?.events ?? null }].slice(-POINTS_MAX);
    morph(main, view());
  }, failed);
}

const ROLES = { owner: ["owns the store", "good"], standby: ["stands by", "accent"], "plog-server": ["plog server", "good"], unwritable: ["takes no writes", "bad"], away: ["away", "bad"] };

export function clusterPage({ main, signal, failed }) {
  document.title = "Cluster · Penstock";
  let servers = null;
  let isAlone = false;
  const view = () => [
    h("div", { class: "title-row" }, h("h1", {}, "Cluster")),
    isAlone
      ? empty("This server shares its store with no other.")
      : servers === null
        ? empty("Loading…")
        : table(
            "Servers",
            [{ title: "Server" }, { title: "Role" }, { title: "Of" }, { title: "Since" }, { title: "Lease until" }, { title: "To repair", number: true }],
            servers.map((server) => ({
              key: `${server.role}-${server.address}`,
              cells: [h("span", { class: "mono" }, server.address), pill(...ROLES[server.role]), server.part ?? "–", server.since ? f.time(server.since * 1000, { withDate: true }) : "–", server.until ? f.timeBeside(server.until * 1000, Date.now()) : "–", server.repair === null ? "–" : f.count(server.repair)],
            })),
          ),
  ];
  morph(main, view());
  repeat(2000, signal, async () => {
    ({ servers } = await get("cluster", {}, signal));
    isAlone = servers === null;
    morph(main, view());
  }, failed);
}
