"""The pictures of the documentation, and the script that takes them."""

from __future__ import annotations

import re
from pathlib import Path

import make_pictures
import pytest
from make_pictures import MAX_BYTES, PICTURES, PIXELS, encode, main
from pages import PAGES, ROOT
from PIL import Image
from small_systems import trained

IMAGES = ROOT / "docs" / "images"
# Alternative text and path of a picture in Markdown.
PICTURE = re.compile(r"!\[([^]]*)\]\(([^)\s]+)\)")


def test_pages_use_existing_pictures_and_describe_them() -> None:
    shown = set()
    for page, path in PAGES.items():
        for description, target in PICTURE.findall(path.read_text(encoding="utf8")):
            picture = (path.parent / target).resolve()
            assert picture.is_file(), f"{page}: {target}"
            if picture.parent == IMAGES:
                assert len(description) > 15, f"{page}: {target}"
                shown.add(picture.name)
    assert shown == {path.name for path in IMAGES.iterdir()}


def test_script_takes_all_pictures_but_diagrams() -> None:
    screenshots = {path.name for path in IMAGES.iterdir() if path.suffix != ".svg"}
    assert screenshots == {f"{name}.webp" for name in PICTURES}


@pytest.mark.parametrize("name", PICTURES)
def test_pictures_are_small(name: str) -> None:
    path = IMAGES / f"{name}.webp"
    assert path.stat().st_size < MAX_BYTES
    with Image.open(path) as picture:
        assert (picture.format, picture.width) == ("WEBP", PIXELS)


def test_encoding_reduces_colors_to_fit_size(monkeypatch: pytest.MonkeyPatch) -> None:
    gradient = Image.linear_gradient("L").resize((400, 400))
    picture = Image.merge("RGB", (gradient, gradient.rotate(90), gradient.rotate(180)))
    first = len(encode(picture))
    monkeypatch.setattr(make_pictures, "MAX_BYTES", first)
    assert len(encode(picture)) < first
    monkeypatch.setattr(make_pictures, "MAX_BYTES", 10)
    with pytest.raises(SystemExit, match="400 x 400 pixels needs more than 10 bytes"):
        encode(picture)


def test_unknown_name_raises_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["error", f"--output={tmp_path}", f"--work={tmp_path / 'work'}"])
    assert "unknown: error; there are annotate, errors" in capsys.readouterr().err


@pytest.mark.integration
def test_picture_of_service_is_taken_with_trained_pipeline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The pipeline exists, so that the script does not train one."""
    work = tmp_path / "work"
    (work / "training").mkdir(parents=True)
    (work / "training" / "job-ads").symlink_to(trained("tener"))
    monkeypatch.setattr(make_pictures, "HAS_FONT", "return true")  # machines without Chinese fonts run this test, too
    monkeypatch.setattr(make_pictures, "JOB_ADS", ("王小明去了上海", "北京大学在北京"))
    main(["serve", f"--output={tmp_path}", f"--work={work}"])
    assert "serve.webp" in capsys.readouterr().out
    assert (tmp_path / "serve.webp").stat().st_size < MAX_BYTES
    with Image.open(tmp_path / "serve.webp") as picture:
        assert (picture.format, picture.width) == ("WEBP", PIXELS)
        colors = picture.convert("RGB").getcolors(1 << 16)
    assert colors is not None
    assert len(colors) > 50
    count, ground = max(colors)
    assert ground in {(246, 247, 249), (255, 255, 255)}  # the light color scheme
    assert count < 0.9 * picture.width * picture.height
