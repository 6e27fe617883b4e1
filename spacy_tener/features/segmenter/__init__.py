"""The words that a segmenter divides a text into, and their parts of speech."""
