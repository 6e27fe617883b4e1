"""The Thinc side: embedders, encoders, whole architectures, the CRF tagger, and the bridge to torch."""
