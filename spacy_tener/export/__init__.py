"""A trained pipeline as one ONNX file that reads texts and finds entities without spaCy."""
