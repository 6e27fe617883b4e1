"""Convolutions along a sequence: plain, dilated, and GRN with its gated relations."""
