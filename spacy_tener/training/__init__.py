"""Everything around a call of `spacy train`: configs, training data, and the process that runs the training.

`config_files` finds configs in the folder `configs`, `overlays` merges overlays into a config, and `runs` trains in a
subprocess with a log. `silver` annotates raw text with trained pipelines (silver-standard data), `static_vectors`
computes word vectors with a pretrained encoder, and `extending` prepares training runs that add labels to a pipeline.

The commands `config`, `debug-data`, `silver`, `vectors`, `extend` and `review`, and `research/`, use this package. The
training step itself (targets, loss, optimizers) is part of the component: see `spacy_tener.pipeline.learning`.
"""
