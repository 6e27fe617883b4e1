"""Attention among the tokens of a sequence: dot products, TENER's adapted form, and transformer layers of either."""
