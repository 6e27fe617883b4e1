"""Optimizers and learning rate schedules for training configs, and fast updates for torch parameters."""
