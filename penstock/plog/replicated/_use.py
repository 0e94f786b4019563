"""The state of replication, for metrics and operators, from what the parts of an owner know."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.plog._replication_use import ReplicationUse

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from penstock.plog.replicated._disks import RefusingDisks
    from penstock.plog.replicated._link import ServerLink
    from penstock.plog.replicated._repairer import Repairer
    from penstock.plog.replicated._window import AppendWindow

__all__ = ["replication_use_of"]


def replication_use_of(
    links: Sequence[ServerLink], disks: RefusingDisks, repairer: Repairer | None, windows: Iterable[AppendWindow]
) -> ReplicationUse:
    """Return the state of the servers and of repair; without an oracle there is no repair."""
    away, incomplete = _servers_away(links, disks)
    failed = sum(bool(window.failure and not window.is_decided) for window in windows)
    is_complete = len(incomplete) < len({link.group for link in links})
    if repairer is None:
        return ReplicationUse(away, failed, 0, is_complete, {}, {}, {}, {})
    groups = {link.group for link in links}
    listed = {group: repairer.is_listed(group) for group in groups}
    strays = {link.address: repairer.strays.count(link.group, link.place) for link in links if listed[link.group]}
    return ReplicationUse(
        away,
        failed + sum(repairer.left(group) for group in groups),
        sum(repairer.copied_size(group) for group in groups),
        is_complete,
        {address: count for address, count in strays.items() if count},
        {link.address: _progress(link.group, links, repairer) for link in links if repairer.left(link.group)},
        {link.address: None if _late(link.group, links) else listed[link.group] for link in links},
        {link.address: lost for link in links if (lost := repairer.lost.count(link.group))},
    )


def _progress(group: str, links: Iterable[ServerLink], repairer: Repairer) -> str:
    """Return how far the repair of a group is, or what it waits for."""
    if late := _late(group, links):
        return f"repair waits for {', '.join(late)}"
    return f"repair is under way, {repairer.copied_size(group):,} bytes copied so far"


def _late(group: str, links: Iterable[ServerLink]) -> list[str]:
    return [link.address for link in links if link.group == group and link.state != "up"]


def _servers_away(links: Iterable[ServerLink], disks: RefusingDisks) -> tuple[dict[str, str], set[str]]:
    """Return the servers that are away or take no writes, with the reasons, and the groups that are incomplete."""
    away: dict[str, str] = {}
    incomplete: set[str] = set()
    for link in links:
        refusal = disks.reason(link.group, link.place)
        if link.state != "up":
            away[link.address] = link.trouble or "connecting"
        elif refusal is not None:
            away[link.address] = refusal
        if link.state == "down" or refusal is not None:  # a connection that was cut is soon back
            incomplete.add(link.group)
    return away, incomplete
