"""Thinc models: embedders, encoders, whole architectures, the CRF tagger, and layers around torch modules."""
