"""Add, poll and receive events of FutoIn event streams; list their consumers; move events out of a database."""
