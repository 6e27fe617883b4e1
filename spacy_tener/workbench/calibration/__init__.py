"""How far probabilities are to be believed, and making them so: temperature, lines of labels, thresholds."""
