"""Pretrained vectors, from whatever file they come in."""
