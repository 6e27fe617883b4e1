"""Encoders of what a token is made of: the characters of a word, the components of a character."""
