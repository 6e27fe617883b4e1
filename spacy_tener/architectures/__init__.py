"""Model architectures for named entity recognition.

Each subpackage implements the encoders from one or more papers. The module `tagger` adds a CRF to an encoder.
"""
