"""Pretrained encoders as ONNX files, which ONNX Runtime computes without torch."""
