"""A plog server: replicas of plogs in a folder, for owners and readers that come over the network.

Theory of operation: each connection has a thread. It takes all requests that have arrived, begins each of them, and
then waits for the first to be durable; the sync that makes it durable makes the others durable, too. While it waits,
the next requests arrive, so that the connection has the group commit of the folder without a thread for each append.
What a request does is decided in :mod:`penstock.plog.replicated`; this package has the sockets, the files, the limits.
A thread in the background reads all sealed replicas slowly, and finds those that are damaged: the scrub.
"""

from penstock.plog.server._folder import HostedPartition, ServerFolder
from penstock.plog.server._limits import PlogServerLimits
from penstock.plog.server._scrub import Scrubber, ScrubSettings
from penstock.plog.server._server import PlogServer

__all__ = ["HostedPartition", "PlogServer", "PlogServerLimits", "ScrubSettings", "Scrubber", "ServerFolder"]
