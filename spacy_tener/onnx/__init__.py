"""Pretrained encoders as ONNX graphs, which ONNX Runtime computes without torch.

- `encoder`: `Encoder`, a graph with its vocabulary, from texts to a vector for each token
- `sources`: the registered function for ONNX files of the user
- `e5`, `bert`, `published_weights`: multilingual E5, or another BERT, from its weights to a graph
- `lac_tagger`: Baidu's LAC, as an encoder and as a word segmenter
- `edits`: changes of graphs, and their conversion to int8
"""
