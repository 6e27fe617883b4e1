"""Everything around a call of `spacy train`: its config, its training data, and the process that runs it.

`config_files` finds the configs of this package in the folder `configs`, `overlays` merges a corpus' config with
overlays, and `runs` trains in a subprocess with a log. `silver` annotates raw text with trained pipelines
(silver-standard data), `static_vectors` computes word vectors with a pretrained encoder, and `extending` prepares the
training of new labels.

Used by the commands `config`, `debug-data`, `silver`, `vectors`, `extend` and `review`, and by `research/`. The
training step itself (targets, loss, optimizers) is part of the component: see `spacy_tener.pipeline.learning`.
"""
