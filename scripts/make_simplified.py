"""Write a table of traditional characters and their simplified forms, from OpenCC's tables (Apache-2.0).

    pip install opencc==1.4.2
    python scripts/make_simplified.py

Only conversions between single characters are included. OpenCC's table for Hong Kong adds variants that the general
table lacks. Its table for Taiwan is not used, since it changes 著, which also occurs in simplified text.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

TARGET = Path(__file__).parent.parent / "spacy_tener" / "features" / "simplified.txt"
IDEOGRAPHS = (range(0x3400, 0xA000), range(0x20000, 0x323B0))
CONVERTERS = ("t2s", "hk2s")
# Characters that are not converted. 乾 also occurs in simplified text, in names such as 乾隆.
STAYING = "乾"


def main() -> None:
    from opencc import OpenCC

    pairs = find_pairs([OpenCC(name).convert for name in CONVERTERS])
    TARGET.write_text("".join(f"{character}{form}\n" for character, form in pairs.items()), encoding="utf8")
    print(f"{len(pairs):,} pairs")


def find_pairs(converters: list[Callable[[str], str]]) -> dict[str, str]:
    """Return the simplified form of each character that has one, from the first converter that changes it."""
    pairs = {}
    for character in (chr(code) for ideographs in IDEOGRAPHS for code in ideographs if chr(code) not in STAYING):
        for convert in converters:
            # Convert twice, since some forms have a further simplified form: 薴 becomes 苧, which becomes 苎.
            form = convert(convert(character))
            if form != character and len(form) == 1:
                pairs[character] = form
                break
    return pairs


if __name__ == "__main__":
    main()
