"""Thinc layers around what computes: arrays in numpy until something learns, then torch modules."""
