"""A process that owns a folder for others, which may be killed at any time.

``python -m penstock.server._keeper FOLDER SECONDS`` says when it owns the folder, or why it does not; and ends when
nobody was there for so many seconds.
"""

import sys

from penstock.server._share import main

if __name__ == "__main__":
    main(*sys.argv[1:])
