"""The words of a lexicon: where they come from, and how they are found in a text."""
