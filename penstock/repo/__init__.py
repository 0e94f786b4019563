"""Repository streams: versioned content as one forward-only stream of records, kept on a Penstock stream.

A repository stores items under keys: revisions, inventories, signatures and texts. They are streamed out by a search
over the revisions, from front to back in one go, and inserted the same way; a bundle is such a stream in one file.
"""
