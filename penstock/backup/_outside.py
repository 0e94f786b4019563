"""Places that neither a backup nor a restored store is put: the folders of stores.

What is removed or restored with a store would be its own backup, and who empties the folder of the one empties both.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.errors import BadArgument
from penstock.model import PLOGS_FOLDER

if TYPE_CHECKING:
    from os import PathLike

__all__ = ["check_outside_stores"]


def check_outside_stores(folder: str | PathLike[str], *, may_be_store: bool = False) -> None:
    """Raise ``BadArgument`` if a folder, which need not be there, is in the folder of a store, or is such a folder.

    With ``may_be_store``, the folder itself is checked by others.
    """
    path = Path(os.path.realpath(folder))
    for place in path.parents if may_be_store else (path, *path.parents):
        if os.path.exists(place / PLOGS_FOLDER / "FORMAT"):
            where = "is" if place == path else f"is in {place},"
            raise BadArgument(f"{os.fspath(folder)} {where} the folder of a store: choose a folder outside of stores")
