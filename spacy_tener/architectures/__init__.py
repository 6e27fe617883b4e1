"""A folder for each architecture, and the tagger that has one below its CRF."""
