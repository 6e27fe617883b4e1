"""Configs composed of a corpus' config and overlays, filled and validated."""
