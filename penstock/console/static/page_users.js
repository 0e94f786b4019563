// Users and what they may do; for those who administer all streams.

import { get, repeat } from "./api.js";
import { h, morph } from "./dom.js";
import { ask, change, empty, table } from "./shell.js";

const PERMISSIONS = [["read", "read"], ["consume", "consume: read, reader groups, consumers"], ["write", "write"], ["admin", "admin: everything"]];

export function usersPage({ main, signal, failed }) {
  document.title = "Users · Penstock";
  let users = null;
  const load = async () => {
    ({ users } = await get("users", {}, signal));
    morph(main, view());
  };
  const changed = async (path, body) => {
    const answer = await change(path, body);
    await load();
    return answer;
  };
  const grantDialog = (user) =>
    ask({
      title: `Grant a permission to ${user}`,
      fields: [
        { name: "permission", label: "Permission", options: PERMISSIONS },
        { name: "pattern", label: "Streams", placeholder: "plant/*", hint: "The name of a stream, plant/* for those of a scope, or * for all." },
      ],
      action: "Grant",
      submit: ({ permission, pattern }) => changed("grant", { user, permission, pattern }),
    });
  const revokeDialog = (user, grant) =>
    ask({
      title: `Revoke a permission of ${user}`,
      text: `${user} may ${grant.permission} ${grant.pattern}. The permission ends at once, also for open connections.`,
      danger: true,
      action: "Revoke",
      submit: () => changed("revoke", { user, ...grant }),
    });
  const row = (user) => ({
    key: user.name,
    cells: [
      user.name,
      user.grants.length
        ? h("ul", { class: "chips" }, user.grants.map((grant) => h("li", { class: "chip" }, h("span", {}, `${grant.permission} `, h("span", { class: "mono" }, grant.pattern)), h("button", { type: "button", "aria-label": `Revoke ${grant.permission} ${grant.pattern} of ${user.name}`, onclick: () => revokeDialog(user.name, grant) }, "×"))))
        : h("span", { class: "muted" }, "nothing was granted"),
      h("button", { type: "button", onclick: () => grantDialog(user.name) }, "Grant…"),
    ],
  });
  const view = () => [
    h("div", { class: "title-row" }, h("h1", {}, "Users")),
    users === null ? empty("Loading…") : users.length ? table("Users", [{ title: "User" }, { title: "May" }, { title: "", number: true }], users.map(row)) : empty("There are no users."),
    h("p", { class: "muted hint" }, "Users are added and removed with penstock user add and penstock user rm."),
  ];
  morph(main, view());
  repeat(5000, signal, load, failed);
}
