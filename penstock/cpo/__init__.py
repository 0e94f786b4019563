"""The control plane oracle (CPO): a small, consistent table that all processes agree on.

It holds the leases that say which process owns what, the persistence clusters, and the newest metadata plog of each
partition. See :class:`Cpo` for how it works, :func:`open_cpo` to open one.
"""

from penstock.cpo._cluster import PersistenceCluster
from penstock.cpo._cpo import Cpo, Versioned
from penstock.cpo._lease import Lease
from penstock.cpo._metadata_plog import MetadataPlog
from penstock.cpo._open import open_cpo

__all__ = ["Cpo", "Lease", "MetadataPlog", "PersistenceCluster", "Versioned", "open_cpo"]
