"""Models that teach: annotation of raw text by trained pipelines."""
