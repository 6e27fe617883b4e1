"""Configs, training data and subprocesses for `spacy train`.

- `config_files` finds and parses config files.
- `overlays` merges partial configs into a training config.
- `runs` runs `spacy train` in a subprocess.
- `silver` creates silver-standard data: raw texts that trained pipelines annotate automatically.
- `static_vectors` computes word vectors with a pretrained encoder.
- `extending` prepares a training run that adds labels to a trained pipeline.

Used by the commands `config`, `debug-data`, `silver`, `vectors`, `extend` and `review`, and by `research/`. The loss
and the optimizers are in `spacy_tener.pipeline.learning`.
"""
