"""The control plane oracle (CPO): the small, slow, never-wrong memory behind everything else.

It holds what must be agreed on by everybody: who owns what (leases), which persistence clusters there are,
and the newest metadata plog of each partition. See :class:`Cpo` for how it works, :func:`open_cpo` to get one.
"""

from penstock.cpo._cluster import PersistenceCluster
from penstock.cpo._cpo import Cpo
from penstock.cpo._lease import Lease
from penstock.cpo._metadata_plog import MetadataPlog
from penstock.cpo._open import open_cpo
from penstock.cpo._rows import Versioned

__all__ = ["Cpo", "Lease", "MetadataPlog", "PersistenceCluster", "Versioned", "open_cpo"]
