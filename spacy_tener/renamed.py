"""Tables of names that were changed before version 1.0, for error messages that suggest the new name.

`cli` looks up commands and options in these tables, and `training.config_files` looks up overlays, registered functions
and their arguments. If you rename something, add the old name here and to the changelog.

Don't rename a registered function that is used in [components] or [nlp], because the configs of saved pipelines contain
the old name. Keep the old function registered, and register the new function under the next version number.
"""

from __future__ import annotations

# Old and new names of `spacy tener` commands.
OLD_COMMANDS = {"self-train": "silver"}

# Old command options, as (command, option), and the options that replace them.
OLD_OPTIONS = {
    ("calibrate", "--in-place"): "--output MODEL --force",
    ("calibrate", "--name"): "--component",
    ("convert", "--format"): "--from",
    ("explain", "--evidence"): "--attribution",
    ("explain", "--no-evidence"): "--no-attribution",
    ("silver", "--outside"): "--outside-threshold",
    ("silver", "--sure"): "--entity-threshold",
    ("suggest", "--known"): "--annotated",
    ("suggest", "--n"): "--limit",
    ("trim", "--name"): "--component",
}

# Old and new names of config overlays.
OLD_OVERLAYS = {"taught": "distilled"}

# Old and new names of registered functions.
OLD_FUNCTIONS = {
    "spacy_tener.ComponentEmbed.v1": "spacy_tener.RadicalEmbed.v1",
    "spacy_tener.ComponentsFile.v1": "spacy_tener.RadicalsFile.v1",
}

# Old and new argument names, for each registered function.
OLD_ARGUMENTS = {
    "spacy_tener.MECT.v1": {"components": "radicals"},
    "spacy_tener.Teacher.v1": {"share": "weight", "completes": "only_missing_labels"},
}
