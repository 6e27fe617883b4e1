"""Pretrained encoders as ONNX graphs, which run with ONNX Runtime and don't require torch.

- `encoder`: the class `Encoder`, which computes a feature vector for each token
- `sources`: `spacy_tener.OnnxEncoder.v1`, which loads an encoder from an ONNX file
- `e5`: `spacy_tener.E5.v1`, which loads multilingual E5 or another BERT model
- `published_weights`: functions that load a BERT model's weights
- `bert`: functions that convert a BERT model to an ONNX graph
- `lac_tagger`: Baidu's LAC, used as an encoder and as a word segmenter
- `edits`: functions that edit and quantize ONNX graphs
"""
