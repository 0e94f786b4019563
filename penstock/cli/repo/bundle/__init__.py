"""Create, show and check bundles: repository streams in a file."""
