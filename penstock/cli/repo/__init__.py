"""Import, export, inspect and copy repositories: versioned content as streams."""
