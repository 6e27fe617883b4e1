"""How sure the component is: decoding with probabilities, and their calibration."""
