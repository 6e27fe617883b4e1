"""Convert trained pipelines, to run them without spaCy, without torch, or with less memory.

Three conversions are available:

- `onnx_model.py` exports a whole pipeline to one ONNX file, for the command `export`. The file takes code points as
  input, and therefore runs without spaCy.
- `transformer_to_onnx_torch.py` converts a pipeline's transformer to ONNX, for `trim --onnx`. The pipeline then
  runs in spaCy without torch.
- `trimming.py` removes rows from embedding tables, for the command `trim`.

Exported files are run by `reader.py` and `reader.js`, are inserted into HTML pages by `page.py`, and are compared with
their pipeline by `check.py`. The other modules create parts of the ONNX graph.
"""
