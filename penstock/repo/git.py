"""Git in and out: :func:`import_git` reads a git repository, :func:`export_git` writes for ``git fast-import``.

Import needs dulwich, which comes with the extra ``repo``.
"""

from penstock.repo._git_export import GitExportResult, export_git
from penstock.repo._git_import import GitImportResult, check_git, import_git

__all__ = ["GitExportResult", "GitImportResult", "check_git", "export_git", "import_git"]
