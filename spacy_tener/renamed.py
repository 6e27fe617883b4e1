"""Names that changed before version 1.0: the old names with the names that replace them.

If a command line or a config contains an old name, the error suggests the new one. Commands check their arguments in
`cli`, and configs are checked by `training.config_files.check_renamed`. The changelog contains the same names. Add a
name here when you rename it.

A name in a section that `spacy.load` resolves ([components], [nlp]) can't be refused, since saved pipelines contain it:
keep the old function registered, or register the new one with the next version number.
"""

from __future__ import annotations

# Commands of `spacy tener`.
OLD_COMMANDS = {"self-train": "silver"}

# Options by command and old name.
OLD_OPTIONS = {
    ("calibrate", "--in-place"): "--output MODEL --force",
    ("calibrate", "--name"): "--component",
    ("convert", "--format"): "--from",
    ("explain", "--evidence"): "--attribution",
    ("explain", "--no-evidence"): "--no-attribution",
    ("suggest", "--n"): "--limit",
    ("trim", "--name"): "--component",
}

# Overlays of configs.
OLD_OVERLAYS = {"taught": "distilled"}

# Registered functions.
OLD_FUNCTIONS = {
    "spacy_tener.ComponentEmbed.v1": "spacy_tener.RadicalEmbed.v1",
    "spacy_tener.ComponentsFile.v1": "spacy_tener.RadicalsFile.v1",
}

# Arguments of registered functions, by the present name of the function.
OLD_ARGUMENTS = {
    "spacy_tener.Teacher.v1": {"share": "weight", "completes": "only_missing_labels"},
}
