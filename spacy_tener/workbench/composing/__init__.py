"""Configs put together from a corpus' config and overlays, filled and checked."""
