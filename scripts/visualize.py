"""Draw the entities that a trained pipeline finds beside those of the corpus, as one self-contained HTML page."""

from __future__ import annotations

import argparse
import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import spacy
from spacy import displacy
from spacy.language import Language
from spacy.scorer import get_ner_prf
from spacy.tokens import Doc
from spacy.training import Corpus, Example
from tqdm import tqdm
from wasabi import msg

Entity = tuple[int, int, str]

PAGE = """<!DOCTYPE html>
<html lang="{lang}">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem; color: #222; }}
table {{ border-collapse: collapse; margin: 1rem 0; }}
th, td {{ padding: .2rem .8rem; text-align: right; border-bottom: 1px solid #ddd; }}
th:first-child, td:first-child {{ text-align: left; }}
article {{ border-top: 1px solid #ddd; padding: .4rem 0; }}
article h3 {{ float: left; width: 6.5rem; margin: .6rem 0 0; font-size: .8rem; font-weight: normal; color: #777; }}
article .entities {{ margin-left: 6.5rem; }}
mark {{ background: none; padding: .2em .4em; border-radius: .3em; border: 2px solid transparent; }}
mark small {{ font-weight: bold; margin-left: .4em; opacity: .75; }}
mark.missed {{ border: 2px dashed #c00; }}
mark.wrong {{ border: 2px solid #c00; }}
#errors-only:checked ~ article.right {{ display: none; }}
</style>
</head>
<body>
<h1>{title}</h1>
<p>{summary}</p>
{scores}
<p>Legend: {legend} <mark class="missed">in the corpus, not found</mark>
<mark class="wrong">found, not in the corpus</mark></p>
<input type="checkbox" id="errors-only"> <label for="errors-only">only texts with errors</label>
{articles}
</body>
</html>
"""
ENTITY = '<mark class="{state}" style="background: {bg}">{text}<small>{label}</small></mark>'


@dataclass(frozen=True)
class Comparison:
    """One text, its entities in the corpus, and those found, as character offsets with labels."""

    text: str
    gold: list[Entity]
    found: list[Entity]

    @property
    def right(self) -> bool:
        return self.gold == self.found


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("corpus", help="name of a corpus of the project, or of yours with the options below")
    parser.add_argument("--system", default="tener", help="what was trained (default: %(default)s)")
    parser.add_argument("--seed", default="1", help="with which seed (default: %(default)s)")
    parser.add_argument("--model", help="pipeline (default: training/CORPUS/SYSTEM/SEED/model-best)")
    parser.add_argument("--data", type=Path, help="its .spacy file with entities (default: corpus/CORPUS/test.spacy)")
    parser.add_argument("--output", type=Path, help="HTML file to write (default: pages/CORPUS-SYSTEM.html)")
    parser.add_argument("--limit", type=int, default=500, help="draw this many texts at most (default: %(default)s)")
    args = parser.parse_args(argv)
    model = args.model or Path("training", args.corpus, args.system, args.seed, "model-best")
    data = args.data or Path("corpus", args.corpus, "test.spacy")
    output = args.output or Path("pages", f"{args.corpus}-{args.system}.html")
    if not data.exists():
        msg.fail(f"There is no data at {data}", "Convert a corpus with `spacy tener convert` first.", exits=1)
    nlp = spacy.load(model)
    # Whoever learned the data's own tokens is shown on them, too.
    own_tokens = nlp.config["corpora"]["dev"].get("gold_preproc", False)
    examples = predict(nlp, list(Corpus(data, gold_preproc=own_tokens)(nlp)))
    title = f"{args.corpus}, {data.stem}: gold and predicted entities"
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(page(examples, lang=str(nlp.lang), title=title, limit=args.limit), encoding="utf8")
    msg.good(f"Entities of {len(examples)} texts drawn: {output.resolve()}")


def predict(nlp: Language, examples: list[Example]) -> list[Example]:
    """The examples with the pipeline's entities on their predicted side."""
    docs = nlp.pipe([example.predicted for example in examples])
    for example, doc in zip(examples, tqdm(docs, total=len(examples), desc="Recognising", disable=None), strict=True):
        example.predicted = doc
    return examples


def page(examples: list[Example], *, lang: str, title: str, limit: int) -> str:
    comparisons = [
        Comparison(each.reference.text, offsets(each.reference), offsets(each.predicted)) for each in examples
    ]
    colors = label_colors(sorted({label for c in comparisons for *_, label in (*c.gold, *c.found)}))
    with_errors = sum(not comparison.right for comparison in comparisons)
    shown = comparisons[:limit]
    summary = f"{len(comparisons)} texts, {with_errors} of them with errors."
    legend = [f'<mark style="background: {color}">{html.escape(label)}</mark>' for label, color in colors.items()]
    return PAGE.format(
        lang=html.escape(lang),
        title=html.escape(title),
        summary=summary if len(shown) == len(comparisons) else f"{summary} The first {len(shown)} are drawn.",
        scores=score_table(get_ner_prf(examples)),
        legend=" ".join(legend),
        articles="\n".join(article(comparison, colors) for comparison in shown),
    )


def offsets(doc: Doc) -> list[Entity]:
    return [(ent.start_char, ent.end_char, ent.label_) for ent in doc.ents]


def label_colors(labels: list[str]) -> dict[str, str]:
    """A light colour per label, hues as far apart as so many labels allow."""
    return {label: f"hsl({360 * index // len(labels)}, 75%, 84%)" for index, label in enumerate(labels)}


def article(comparison: Comparison, colors: dict[str, str]) -> str:
    """One text: drawn once where the pipeline is right, and otherwise what the corpus has above what was found."""
    text, gold, found = comparison.text, comparison.gold, comparison.found
    if comparison.right:
        return f'<article class="right"><h3>right</h3>{draw(text, gold, colors)}</article>'
    missed, wrong = set(gold) - set(found), set(found) - set(gold)
    upper = draw(text, gold, colors, dict.fromkeys(missed, "missed"))
    lower = draw(text, found, colors, dict.fromkeys(wrong, "wrong"))
    return f'<article class="error"><h3>corpus</h3>{upper}<h3>found</h3>{lower}</article>'


def draw(
    text: str, entities: list[Entity], colors: dict[str, str], states: Mapping[Entity, str] = MappingProxyType({})
) -> str:
    """Mark the entities in the text; `states` are the classes of those that one side lacks."""
    ents = [
        # displacy has no classes, and its colours clash where labels differ in case only: both go in as params.
        {
            "start": entity[0],
            "end": entity[1],
            "label": html.escape(entity[2]),
            "params": {"bg": colors[entity[2]], "state": states.get(entity, "right")},
        }
        for entity in entities
    ]
    parsed = {"text": text, "ents": ents}
    options = {"template": ENTITY}
    markup: str = displacy.render(parsed, style="ent", manual=True, page=False, jupyter=False, options=options)
    return markup


def score_table(scores: dict[str, Any]) -> str:
    rows = [("all", {name: scores[f"ents_{name}"] for name in "prf"}), *sorted((scores["ents_per_type"] or {}).items())]
    body = "".join(
        f"<tr><td>{html.escape(label)}</td>" + "".join(f"<td>{percent(row[name])}</td>" for name in "prf") + "</tr>"
        for label, row in rows
    )
    return f"<table><tr><th>label</th><th>precision</th><th>recall</th><th>F1</th></tr>{body}</table>"


def percent(score: float | None) -> str:
    return "-" if score is None else f"{100 * score:.1f}"


if __name__ == "__main__":
    main()
