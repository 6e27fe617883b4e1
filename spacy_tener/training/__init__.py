"""Optimizers and schedules that the papers use and Thinc lacks."""
