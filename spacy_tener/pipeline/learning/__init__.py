"""Training of the component: targets from annotation, distributions of a teacher, losses."""
