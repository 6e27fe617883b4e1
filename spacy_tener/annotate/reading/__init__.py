"""Records from files of many formats, anywhere, and in parts of bounded size."""
