"""Conversion of trained pipelines, to run them without spaCy, without torch, or with less memory.

`onnx_model` exports a whole pipeline, from code points to entities, as one ONNX file that requires neither spaCy nor
this package. `code_points`, `window_batches`, `layers`, `crf_graph` and `lists_graph` write the parts of its graph.
`reader` and `reader.js` run the file in Python and JavaScript, `page` inserts it into an HTML page, and `check`
compares it with the pipeline. `transformer_to_onnx_torch` converts only the transformer of a pipeline, which then runs
in spaCy without torch. `trimming` removes rows from embedding tables.

Used by the commands `export` and `trim`.
"""
