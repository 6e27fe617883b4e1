"""Training of the component: targets from annotation, lessons of a teacher, losses."""
