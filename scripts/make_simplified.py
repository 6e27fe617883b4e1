"""Write each traditional character with its simplified one from OpenCC's tables (Apache-2.0), one for one.

    pip install opencc==1.4.2
    python scripts/make_simplified.py

Variants of Hong Kong that OpenCC's general table lacks come from its table for Hong Kong. That for Taiwan is left out:
it changes 著, which simplified text has as well.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

TARGET = Path(__file__).parent.parent / "spacy_tener" / "features" / "simplified.txt"
IDEOGRAPHS = (range(0x3400, 0xA000), range(0x20000, 0x323B0))
CONVERTERS = ("t2s", "hk2s")
STAYING = "乾"
"""Simplified text has it in common names, as 乾隆."""


def main() -> None:
    from opencc import OpenCC

    pairs = find_pairs([OpenCC(name).convert for name in CONVERTERS])
    TARGET.write_text("".join(f"{character}{form}\n" for character, form in pairs.items()), encoding="utf8")
    print(f"{len(pairs):,} pairs")


def find_pairs(converters: list[Callable[[str], str]]) -> dict[str, str]:
    """Return the form of each character that has another one, by the first converter that knows it."""
    pairs = {}
    for character in (chr(code) for ideographs in IDEOGRAPHS for code in ideographs if chr(code) not in STAYING):
        for convert in converters:
            # Twice, since a form may have another one: 薴 is 苧, which is 苎.
            form = convert(convert(character))
            if form != character and len(form) == 1:
                pairs[character] = form
                break
    return pairs


if __name__ == "__main__":
    main()
