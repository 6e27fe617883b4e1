"""Optimizers and learning rate schedules of the papers, and updates of embedding rows."""
