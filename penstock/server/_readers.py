"""A reader in another process, as its group sees it on the server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from penstock.server._session import FENCED
from penstock.stream.read import READER_LEASE_S
from penstock.wire import pack_error

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.errors import PenstockError
    from penstock.server._session import Session
    from penstock.stream.catalog import Key
    from penstock.stream.group import LocalMembership
    from penstock.stream.segment import Segment

__all__ = ["ClientReader"]


class ClientReader:
    """A remote reader: the positions that it has sent, and when its client was last seen."""

    is_remote: Final = True

    def __init__(self, session: Session, membership: LocalMembership, reader_id: str, token: str | None) -> None:
        self.reader_id: Final = reader_id
        self.membership: Final = membership
        self.error: PenstockError | None = None
        self.number = 0
        self._token = token
        self._session, self._clock = session, membership.clock
        self._places: dict[Key, int] = {}  # up to where it has read
        self._returned: dict[Key, int] = {}  # with what it returned last
        self._segments: dict[Key, Segment] = {}  # those it holds, also when the store has them no more
        self._seen = self._clock.elapsed()

    def open(self) -> None:
        """Add it to the session, now that it has its membership."""
        try:
            self.number = self._session.add(self)
        except BaseException:
            self.abandon()
            raise

    @property
    def streams(self) -> tuple[str, ...]:
        """The streams of its group."""
        return self.membership.streams

    # What the client calls

    def sync(self, places: Mapping[Key, int], told: str | None, *, passing: bool) -> list[Any] | None:
        """Come to a checkpoint, give and take segments; see :class:`penstock.stream.read.Membership`."""
        self.note_seen(places)
        assignment = self.membership.sync(places, told=told, passing=passing)
        if assignment is None:
            return None
        for key in assignment.held.keys() - self._segments.keys():
            try:
                self._segments[key] = self.membership.segment(key)
            except KeyError:
                continue  # truncated at this very moment: the next sync raises it
        self._segments = {key: segment for key, segment in self._segments.items() if key in assignment.held}
        ahead = {key: place for key, place in assignment.held.items() if place > self._places.get(key, -1)}
        self._places |= ahead  # another reader was there meanwhile: no reader goes back behind it
        self._returned |= ahead
        return [
            assignment.checkpoint,
            [[*key, place, self.membership.end_of(key)] for key, place in assignment.held.items()],
        ]

    def note_seen(self, places: Mapping[Key, int] | None = None, returned: Mapping[Key, int] | None = None) -> None:
        """Note that the client is alive, and where its reader is; ``BadArgument`` where no reader can be.

        Places in segments that there are not, and that the reader does not hold, are not kept.
        """
        self._seen = self._clock.elapsed()
        if places is not None:
            returned = places if returned is None else returned
            known = self._places.items() | self._returned.items()
            gone = self.membership.check_places((places.items() | returned.items()) - known) - self._segments.keys()
            self._places = {key: place for key, place in places.items() if key not in gone}
            self._returned = {key: place for key, place in returned.items() if key not in gone}

    def is_open_in(self, session: Session, token: str | None) -> bool:
        """Whether it is the reader that the client opens in this session: an earlier attempt was carried out late."""
        return self._session is session and self._token is not None and self._token == token

    def end_if_left_behind(self, token: str | None) -> bool:
        """End the session if its client is gone and that was not noticed yet; return whether it is over.

        It is gone if the same reader is opened in another session.
        """
        if self._session.is_gone() or (self._token is not None and self._token == token):
            self._session.end()
        return self._session.is_over

    def leave(self) -> None:
        """Leave the group: the client has closed the reader."""
        if self.error is None:
            self.membership.leave(self._places)

    def abandon(self) -> None:
        """Leave the group, because the client is gone; if the server ends, the client returns to the next one."""
        if self.error is None:
            part = self.membership.await_return if self._session.server_ends() else self.membership.leave
            part(self._places)

    # What the group calls

    def attend(self) -> None:
        """Have the client sync with the group."""
        self._session.notify((self.number, "attend"), ["attend", self.number])

    def stop(self, error: PenstockError) -> None:
        """Stop the reader of the client; if the store has a new owner, the client continues there."""
        if isinstance(error, FENCED):
            self._session.cut_off()
            return
        self.error = error
        self._session.drop(self.number, error)
        self._session.notify((self.number, "stop"), ["stop", self.number, pack_error(error)])

    def miss(self, error: PenstockError) -> None:
        """Notify the client that events were truncated or deleted before it had read them."""
        self._session.notify((self.number, str(error)), ["miss", self.number, pack_error(error)])

    def missed(self, lost: Mapping[Key, int]) -> dict[Key, int]:
        """Return of segments that are gone those that it has not read to the end, and where it was."""
        found = {}
        for key, recorded in lost.items():
            segment, end, place = (
                self._segments.get(key),
                self.membership.end_of(key),
                self._returned.get(key, recorded),
            )
            if segment is None or place < (segment.tail if end is None else end):
                found[key] = place
        return found

    def places(self, *, returned: bool) -> dict[Key, int]:
        """Return the positions that the client has sent."""
        return dict(self._returned if returned else self._places)

    def is_silent(self, now: float) -> bool:
        """Whether its client was not seen for as long as the lease."""
        return now - self._seen > READER_LEASE_S

    def let_go(self) -> None:
        """Nothing: the client watches its segments itself."""
