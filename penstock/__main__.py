"""``python -m penstock``: the command line, where its script is not on the path."""

from penstock.cli import main

main()
