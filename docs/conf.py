"""The settings of Sphinx, with which ``make docs`` turns these pages into a site; and the pages that it generates."""

from __future__ import annotations

import inspect
import re
import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parent.parent))

from penstock import __version__
from tools.cli_reference import command_page

if TYPE_CHECKING:
    from types import ModuleType

project = "Penstock"
author = "the Penstock maintainers"
version = release = __version__
extensions = ["myst_parser", "sphinx.ext.autodoc"]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
exclude_patterns = ["decisions/README.md"]  # the site has decisions/index.rst
myst_heading_anchors = 4
myst_all_links_external = False
autodoc_typehints = "signature"
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
html_theme = "furo"
html_title = f"Penstock {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_theme_options = {"sidebar_hide_name": False}
pygments_style, pygments_dark_style = "friendly", "monokai"
suppress_warnings = [
    "misc.highlighting_failure",  # diagrams are shown as text
    "myst.xref_missing",  # links to files of the repository that are not pages: a test checks that they exist
]

_GENERATED = Path(__file__).parent / "_generated"
_GENERATED.mkdir(exist_ok=True)
_COMMANDS = _GENERATED / "commands.rst"
_COMMANDS.write_text(command_page())

_PAGE = Path(__file__).parent / "python.rst"


def _resolve(module: ModuleType) -> None:
    """Let autodoc see the names that a package imports at first use, and the types that only type checkers import."""
    for name in module.__all__:
        exported = getattr(module, name)
        setattr(module, name, exported)
        if isinstance(exported, type):
            _resolve_signature(exported)


def _resolve_signature(exported: type) -> None:
    """Stand in for types that msgspec evaluates for a signature, and that are imported for type checkers alone."""
    while True:
        try:
            inspect.signature(exported)
        except NameError as error:
            stand_in = type(error.name, (), {"__module__": "builtins"})
            setattr(sys.modules[exported.__module__], error.name, stand_in)
        except ValueError:  # a class that has none
            return
        else:
            return


for _name in re.findall(r"^\.\. automodule:: (\S+)$", _PAGE.read_text(), re.MULTILINE):
    _resolve(import_module(_name))
