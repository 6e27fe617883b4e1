"""GRN, the gated relation network (Chen et al., 2019)."""
