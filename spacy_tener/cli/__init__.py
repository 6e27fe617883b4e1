"""The command line program `tener`. Each module in this package defines one command.

    tener convert train.jsonl --output train.spacy
    python -m spacy tener convert train.jsonl --output train.spacy    # the same command, as a part of spaCy's program

Importing spaCy takes seconds if torch is installed, because Thinc imports torch. This module doesn't import spaCy, and
the module of a command is only imported when this command is called.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from .. import renamed

# Command names with the first lines of their help texts, in the order in which `--help` lists them. A command's module
# has the same name, with `_` instead of `-`.
COMMANDS = {
    "convert": "Convert annotated corpora to .spacy files.",
    "debug-data": "Check training data and its entities with `spacy debug data`.",
    "suggest": "Select the texts that are most useful to annotate (active learning).",
    "review": "Find annotation errors in gold annotation.",
    "silver": "Annotate raw texts with trained pipelines, to use them as training data (silver-standard data).",
    "config": "Create a training config: chosen for your corpus, or composed of a base config, overlays and settings.",
    "vectors": "Compute static word vectors with a pretrained encoder.",
    "extend": "Add new labels to a trained pipeline, and keep its existing labels.",
    "evaluate": "Score a pipeline, and count its true positives, false positives and false negatives.",
    "explain": "Explain the entities that a pipeline predicts.",
    "calibrate": "Calibrate the probabilities of a pipeline on annotated texts.",
    "trim": "Make a pipeline smaller, or convert its transformer to ONNX.",
    "export": "Export a pipeline to a single ONNX file that processes raw text.",
    "annotate": "Annotate large collections of texts with a trained pipeline.",
    "serve": "Serve pipelines over HTTP, with a demo page.",
}


class LazyGroup(TyperGroup):
    """Group of typer commands that imports a command's module only when the command is called."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return all command names without importing their modules."""
        return list(COMMANDS)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the list of commands for `--help` without importing their modules."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name in renamed.OLD_COMMANDS:
            ctx.fail(f"The command '{cmd_name}' was renamed. Use '{renamed.OLD_COMMANDS[cmd_name]}'.")
        if cmd_name not in COMMANDS:
            # typer suggests commands with similar names from the keys of this dictionary.
            self.commands = dict.fromkeys(COMMANDS)  # type: ignore[assignment]
            return None
        import_module(f"{__package__}.{cmd_name.replace('-', '_')}")
        group: Any = get_command(tener_cli)
        self.commands = group.commands
        return self.commands.get(cmd_name)


class Command(TyperCommand):
    """Command that reports the new name of a renamed option."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the command line arguments. A renamed option ends the command with an error."""
        for argument in args:
            option = argument.partition("=")[0]
            new = renamed.OLD_OPTIONS.get((str(self.name), option))
            if new:
                ctx.fail(f"The option {option} was renamed. Use {new}.")
        return super().parse_args(ctx, args)


tener_cli = typer.Typer(name="tener", cls=LazyGroup, rich_markup_mode=None, pretty_exceptions_short=True)


@tener_cli.callback(no_args_is_help=True)
def tener() -> None:
    """Train, evaluate and use pipelines for named entity recognition with TENER and related models."""


def main() -> None:
    """Run the program `tener`."""
    if sys.argv[1:2] == ["convert"]:
        # Thinc imports torch if it is installed, which takes seconds. This command does not use torch.
        sys.modules["torch"] = None  # type: ignore[assignment]
    get_command(tener_cli)(sys.argv[1:], prog_name="tener")
