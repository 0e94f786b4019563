"""The settings of Sphinx, with which ``make docs`` turns these pages into a site; and the pages that it generates."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from penstock import __version__
from tools.cli_reference import command_page

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
