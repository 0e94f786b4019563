// The console: who is signed in, which page is shown, and whether the server answers.

import { ApiError, get, listen, repeat, send } from "./api.js";
import { h, morph } from "./dom.js";
import { clusterPage, healthPage } from "./page_health.js";
import { streamPage } from "./page_stream.js";
import { streamsPage } from "./page_streams.js";
import { usersPage } from "./page_users.js";
import { applyTheme, banner, closeDialogs, topBar } from "./shell.js";

const main = document.getElementById("main");
let session = null;
let leave = new AbortController();

const path = () => location.hash.replace(/^#/, "") || "/streams";

function showTop() {
  morph(document.getElementById("top"), topBar(session, path(), signOut));
}

function problemPage(error) {
  const isGone = error.status === 404;
  if (isGone) document.title = "Not found · Penstock";
  morph(
    main,
    h(
      "section",
      { class: "card problem-page", role: "alert" },
      h("h1", {}, isGone ? "Not found" : "This cannot be shown"),
      h("p", {}, error.message),
      h("p", {}, h("a", { class: "button", href: "#/streams" }, "All streams")),
    ),
  );
}

const notFound = () => problemPage(new ApiError(404, "NoSuchPage", "The console has no such page. Check the address."));

// The decoded parts of a place; null if it is malformed.
function partsOf(place) {
  try {
    return place.split("/").filter(Boolean).map(decodeURIComponent);
  } catch (error) {
    if (!(error instanceof URIError)) throw error;
    return null;
  }
}

function route() {
  leave.abort();
  leave = new AbortController();
  closeDialogs();
  if (session === null) return;
  const [place, search = ""] = path().split("?");
  const parts = partsOf(place);
  const context = { session, main, signal: leave.signal, params: new URLSearchParams(search), failed: problemPage };
  showTop();
  main.replaceChildren();
  if (parts === null) notFound();
  else if (parts[0] === "stream" && parts.length >= 3) streamPage(context, `${parts[1]}/${parts[2]}`, parts[3] ?? "overview");
  else if (parts[0] === "health") healthPage(context);
  else if (parts[0] === "cluster") clusterPage(context);
  else if (parts[0] === "users") usersPage(context);
  else if (parts.length === 0 || parts[0] === "streams") streamsPage(context);
  else notFound();
}

// What to do before anybody can sign in. It is no secret: a server without users lets nobody in.
const firstUser = () => [
  h("p", {}, "This server has no users yet. Add the first one on the machine of the server, where ", h("code", {}, "DATA"), " is the folder of the store:"),
  h("pre", { tabindex: 0, "aria-label": "Commands to run" }, "penstock user add anna --store DATA\npenstock user grant anna admin '*' --store DATA"),
  h("p", { class: "muted" }, "Then sign in here. The server need not be restarted."),
];

function signInPage({ note = "", hasUsers = true } = {}) {
  leave.abort();
  closeDialogs();
  session = null;
  document.title = "Sign in · Penstock";
  showTop();
  const problem = h("p", { class: "problem", role: "alert" }, note);
  const advice = h("div", { class: "advice" });
  const advise = (has) => morph(advice, has ? h("p", { class: "muted" }, "Use the name and the password of a user of this server.") : firstUser());
  advise(hasUsers);
  const user = h("input", { id: "user", name: "user", autocomplete: "username", required: true, spellcheck: "false", autocapitalize: "none" });
  const password = h("input", { id: "password", name: "password", type: "password", autocomplete: "current-password", required: true });
  const button = h("button", { class: "primary", type: "submit" }, "Sign in");
  const form = h(
    "form",
    { class: "card sign-in" },
    h("h1", {}, "Sign in"),
    advice,
    h("p", { class: "field" }, h("label", { for: "user" }, "User"), user),
    h("p", { class: "field" }, h("label", { for: "password" }, "Password"), password),
    problem,
    button,
  );
  form.onsubmit = async (event) => {
    event.preventDefault();
    button.disabled = true;
    problem.textContent = "";
    try {
      await send("session", { user: user.value, password: password.value });
      await begin();
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      const isWrong = error.status === 401;
      const has = !isWrong || (await hasAnyUser());
      advise(has);
      problem.textContent = !has ? "Nobody can sign in yet." : isWrong ? "The user or the password is wrong." : sentence(error.message);
      password.select();
    } finally {
      button.disabled = false;
    }
  };
  main.replaceChildren(form);
  user.focus();
}

const hasAnyUser = () => get("session").then((found) => found.has_users, () => true);
const sentence = (text) => `${text.charAt(0).toUpperCase()}${text.slice(1)}.`;

async function signOut() {
  try {
    await send("session", {}, "DELETE");
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
  }
  signInPage();
}

async function begin() {
  const found = await get("session");
  if (found.user === null) return signInPage({ hasUsers: found.has_users });
  session = found;
  route();
}

async function start() {
  const over = new AbortController();
  await repeat(0, over.signal, async () => {
    await begin();
    over.abort();
  }, problemPage);
}

listen("signedOut", (error) => {
  if (session !== null) signInPage({ note: error.kind === "NotAuthenticated" ? "Your session has ended. Sign in again." : error.message });
});
listen("connection", (isGood, error) => {
  if (isGood) banner("");
  else if (error.status === 429) banner(`The server is busy: ${error.message}. Trying again.`);
  else if (error.status && error.message) banner(`The call failed: ${error.message}. Trying again.`);
  else banner("The server does not answer. Trying again until it is back.");
});
window.addEventListener("hashchange", () => {
  route();
  main.focus({ preventScroll: true });
  window.scrollTo(0, 0);
});
document.getElementById("skip").addEventListener("click", (event) => {
  event.preventDefault(); // the hash names a page, not a place in it
  main.focus();
});

applyTheme();
start();
