"""Plogs in an object store: a bucket of S3, a container of Azure.

Theory of operation: a put is slow and costs money, so appends of all plogs share one. The journal is a row of objects
with consecutive numbers, each put only if there is none of its name. An owner that opens the store puts a fence at the
next number, and the owner before it can never acknowledge anything again. Large appends get objects of their own,
before the journal object that names them. In the background, plogs that are sealed leave the journal, and a checkpoint
notes where everything lies, so that journal objects can be deleted and the next owner reads few of them.

::

    store                           which store this is
    journal/NUMBER                  groups of changes, with the blocks of small appends
    plogs/UID.BIRTH/EPOCH-….part    blocks of one plog
    plogs/UID.BIRTH/EPOCH.plog      a sealed plog: its state, and the blocks that lay in the journal
    checkpoint                      the state of all plogs before some number of the journal
"""

from penstock.plog.objects._identity import check_store
from penstock.plog.objects._open import check_settings, identify_store, open_cache, open_object_plogs
from penstock.plog.objects._plogs import ObjectPlogs
from penstock.plog.objects._requests import Requests
from penstock.plog.objects._settings import ObjectSettings

__all__ = [
    "ObjectPlogs",
    "ObjectSettings",
    "Requests",
    "check_settings",
    "check_store",
    "identify_store",
    "open_cache",
    "open_object_plogs",
]
