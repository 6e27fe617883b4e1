"""What the component learns from a batch: annotation, and what a teacher says."""
