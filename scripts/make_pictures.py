"""Take the pictures of the documentation: screenshots of HTML pages in Chromium, saved as WebP.

    python scripts/make_pictures.py
    python scripts/make_pictures.py errors review

The script trains small pipelines on the sample corpora, creates pages with the commands of the documentation, and takes
screenshots of them. Pipelines and pages are kept in the directory `--work`, and finished training runs are skipped. The
exported page needs ONNX Runtime for JavaScript, see `make readers`.
"""

from __future__ import annotations

import argparse
import io
import os
import random
import subprocess
import sys
import threading
from base64 import b64decode
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import spacy
from PIL import Image
from spacy.language import Language
from spacy.tokens import DocBin

from spacy_tener.corpora.docs import read_docs
from spacy_tener.files import replaced, write_bytes

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "tests"))

from browser import PHONE, Browser, open_browser  # noqa: E402

SAMPLE = ROOT / "assets" / "sample"
RUNTIME = ROOT / "readers" / "js" / "node_modules" / "onnxruntime-web"
MAX_BYTES = 60_000
# Width of a page in CSS pixels and of its picture in device pixels. The pages place sections next to each other from
# 960 CSS pixels on.
WIDTH, PIXELS = 1000, 1300
HEIGHT = 900
SECONDS = 120  # Time limit for a page to display entities.
MARGIN = 14  # CSS pixels below the last element of a picture.
LIBRARY = "黎明从南京路步行到上海图书馆，借了《红楼梦》。"
JOB_ADS = (
    "Die Diakonie Celle gGmbH sucht ab sofort Verstärkung mit Erfahrung in Jenkins.",
    "Sie haben ein abgeschlossenes Studium der Informatik und gute Excelkenntnisse.",
)
NEWS = (
    "吴重阳上周去了北京大学，回来在微博上说周杰伦在上海的演唱会真好看。",
    "老师和同学们都说，中国银行的李经理下个月要去美国。",
)
BOX = "const box = document.querySelector(arguments[0]).getBoundingClientRect();"
ENTER = """
    const input = document.getElementById("input");
    input.value = arguments[0];
    input.dispatchEvent(new Event("input", { bubbles: true }));
"""
CHOOSE = """
    const field = document.getElementById(arguments[0]);
    field.value = arguments[1];
    field.dispatchEvent(new Event("change", { bubbles: true }));
"""
CLICK_ENTITY = """
    const entities = [...document.querySelectorAll("#text .ent")];
    entities.find((node) => node.firstChild.textContent === arguments[0]).querySelector("small").click();
"""
# The displayed text, without the labels of its entities.
SHOWN = """
    const text = document.getElementById("text").cloneNode(true);
    for (const label of text.querySelectorAll("small")) label.remove();
    return text.textContent.trim().endsWith(arguments[0]);
"""
IS_FOUND = "return !document.getElementById('json').disabled"
# Without a Chinese font, a browser draws the same box for all characters.
HAS_FONT = """
    const draw = (character) => {
      const canvas = document.createElement("canvas");
      canvas.getContext("2d").fillText(character, 0, 20);
      return canvas.toDataURL();
    };
    return draw("中") !== draw("文");
"""


@dataclass(frozen=True)
class Studio:
    """A browser, and a directory with corpora, pipelines and pages.

    work (Path): The directory. Commands run in it, so that the pages display short paths.
    """

    browser: Browser
    work: Path

    def run(self, *arguments: object) -> None:
        """Run a command of spaCy. Its output is only shown if it fails."""
        command = [sys.executable, "-m", "spacy", *map(str, arguments)]
        path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
        ran = subprocess.run(
            command, cwd=self.work, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True
        )
        if ran.returncode:
            raise SystemExit(f"{' '.join(command)}\n{ran.stdout}\n{ran.stderr}")

    def corpus(self) -> Path:
        """Convert the Chinese sample, and return the directory of its .spacy files."""
        return self._converted("corpus", SAMPLE / "zh")

    def german_corpus(self) -> Path:
        """Convert the annotated German texts, and use a fifth of the texts as the development set."""
        lines = (SAMPLE / "de" / "annotated.jsonl").read_text(encoding="utf8").splitlines(keepends=True)
        random.Random(0).shuffle(lines)
        texts = self.work / "texts"
        texts.mkdir(exist_ok=True)
        for name, part in {"train": lines[24:], "dev": lines[:24]}.items():
            (texts / f"{name}.jsonl").write_text("".join(part), encoding="utf8")
        return self._converted("german", texts, "--lang", "de")

    def _converted(self, name: str, source: Path, *options: str) -> Path:
        if not (self.work / name).exists():
            with replaced(self.work / name) as new:
                self.run("tener", "convert", source, *options, "--output", new)
        return Path(name)

    def chinese(self, overlay: str) -> Path:
        """Train a pipeline on the Chinese sample, with an overlay."""
        return self._trained(overlay, ("sample", overlay), self.corpus)

    def german(self) -> Path:
        """Train a pipeline on the German sample, with the settings of `tener config --optimize efficiency`."""
        settings = ("nlp.lang=de", "training.max_steps=1000", "training.eval_frequency=50", "training.patience=0")
        return self._trained("job-ads", ("sample_en",), self.german_corpus, settings)

    def _trained(
        self, name: str, configs: Sequence[str], corpus: Callable[[], Path], settings: Sequence[str] = ()
    ) -> Path:
        """Train a pipeline if it does not exist, and return its path relative to the directory.

        configs (Sequence[str]): Names of the config and its overlays.
        corpus (Callable[[], Path]): Function that returns the directory of the corpus.
        """
        model = Path("training", name)
        if not (self.work / model).exists():
            print(f"Training {name}", flush=True)
            paths = [f"paths.{part}={corpus() / part}.spacy" for part in ("train", "dev")]
            options = [option for setting in (*paths, *settings) for option in ("--set", setting)]
            self.run("tener", "config", *configs, *options, "--output", f"{name}.cfg", "--force")
            self.run("train", f"{name}.cfg", "--output", f"unfinished/{name}")
            with replaced(self.work / model) as new:
                (self.work / "unfinished" / name / "model-best").rename(new)
        return model

    def open(self, page: Path | str, size: tuple[int, int] = (WIDTH, HEIGHT), pixels: int = PIXELS) -> None:
        """Open a page of the directory, or a URL, in English and in a window of the given size.

        pixels (int): Width of the picture in device pixels.
        """
        url = page if isinstance(page, str) else (self.work / page).resolve().as_uri()
        with self.browser.with_language("en"):
            self.browser.open(url, size, pixels / size[0])

    def bottom(self, selector: str) -> int:
        """Return the bottom of the first element with a selector, in CSS pixels from the top of the page."""
        return int(self.browser.run(f"{BOX} return Math.ceil(box.bottom + scrollY)", selector))

    def screenshot(self, bottom: int, top: int = 0) -> Image.Image:
        """Return a part of the page between two vertical positions in CSS pixels, over the width of the window."""
        width = self.browser.run("return document.documentElement.clientWidth")
        clip = {"x": 0, "y": top, "width": width, "height": bottom - top, "scale": 1}
        options = {"format": "png", "clip": clip, "captureBeyondViewport": True}
        taken = self.browser.driver.execute_cdp_cmd("Page.captureScreenshot", options)
        return Image.open(io.BytesIO(b64decode(taken["data"]))).convert("RGB")


def take_annotation(studio: Studio) -> Image.Image:
    """The annotation page, with suggestions of a pipeline."""
    model, corpus = studio.chinese("lac"), studio.corpus()
    texts = [doc.text for doc in read_docs(studio.work / corpus / "test.spacy")]
    (studio.work / "raw.txt").write_text("".join(f"{text}\n" for text in texts), encoding="utf8")
    studio.run("tener", "suggest", model, "raw.txt", "-n", 50, "--output", "annotate.html", "--force")
    return _texts_with_tools(studio, Path("annotate.html"), "x")


def take_review(studio: Studio) -> Image.Image:
    """The review page of a development set in which every fifth entity is missing."""
    model, number, incomplete = studio.chinese("lac"), count(1), DocBin()
    for doc in read_docs(studio.work / studio.corpus() / "dev.spacy"):
        doc.set_ents([entity for entity in doc.ents if next(number) % 5], default="outside")
        incomplete.add(doc)
    (studio.work / "annotated").mkdir(exist_ok=True)
    incomplete.to_disk(studio.work / "annotated" / "dev.spacy")
    studio.run("tener", "review", model, "annotated/dev.spacy", "--output", "reviewed")
    return _texts_with_tools(studio, Path("reviewed", "review.html"), "a")


def _texts_with_tools(studio: Studio, page: Path, key: str, texts: int = 3) -> Image.Image:
    """Take a page for annotation. The window ends after some of the texts, with the tools at its bottom.

    key (str): The key of the first decision.
    """
    studio.open(page)
    tools = studio.browser.run(f"{BOX} return Math.ceil(box.height)", "#tools")
    height = studio.bottom(f"#list > li:nth-of-type({texts})") + tools
    studio.open(page, (WIDTH, height))
    studio.browser.run("document.querySelector(`#tools [data-key=${arguments[0]}]`).click()", key)
    return studio.screenshot(height)


def take_errors(studio: Studio) -> Image.Image:
    """The errors page, down to the third text with errors."""
    page = ("--page", "errors.html", "--explain", 3, "--force")
    studio.run("tener", "evaluate", studio.chinese("lac"), studio.corpus() / "test.spacy", *page)
    studio.open(Path("errors.html"), (1280, HEIGHT))
    return studio.screenshot(studio.bottom("#list > li:nth-of-type(3)"))


def take_service(studio: Studio) -> Image.Image:
    """The page of the service, with two texts for a German pipeline."""
    with _served({"job-ads": spacy.load(studio.work / studio.german())}) as url:
        studio.open(url)
        _enter(studio, JOB_ADS)
        return studio.screenshot(studio.bottom("#main > section:nth-of-type(2)") + MARGIN)


@contextmanager
def _served(models: Mapping[str, Language]) -> Iterator[str]:
    """Run a service on a free port, and yield its address."""
    from spacy_tener.serve import Server, address, bind, make_app

    listens = threading.Event()
    server = Server(make_app(models), listens.set)
    with bind("127.0.0.1", 0) as sock:
        thread = threading.Thread(target=server.run, args=([sock],))
        thread.start()
        try:
            listens.wait(60)
            yield f"{address(sock)}/"
        finally:
            server.should_exit = True
            thread.join()


def take_explanation(studio: Studio) -> Image.Image:
    """The explanation of an entity, by a pipeline with a lexicon."""
    _explain(studio, "mect", (1120, HEIGHT))
    return studio.screenshot(max(map(studio.bottom, ("#entity", "#lexicon"))) + MARGIN)


def take_lac_explanation(studio: Studio) -> Image.Image:
    """The explanation of the same text by a pipeline without a lexicon, with its best label sequences."""
    _explain(studio, "lac")
    studio.browser.run("document.getElementById('sequences').open = true")
    return studio.screenshot(max(map(studio.bottom, ("#entity", "#read"))) + MARGIN)


def take_phone_explanation(studio: Studio) -> Image.Image:
    """Two parts of the page on a phone, next to each other, in dark colors."""
    gap = 40
    studio.browser.set_color_scheme("dark")
    try:
        _explain(studio, "mect", PHONE, (PIXELS - gap) // 2)
        top = studio.browser.run(f"{BOX} return Math.floor(box.top + scrollY)", "#entity") - MARGIN
        left, right = studio.screenshot(top), studio.screenshot(2 * top, top)
    finally:
        studio.browser.set_color_scheme("light")
    picture = Image.new("RGB", (PIXELS, left.height), "white")
    picture.paste(left)
    picture.paste(right, (PIXELS - right.width, 0))
    return picture


def _explain(studio: Studio, overlay: str, size: tuple[int, int] = (WIDTH, HEIGHT), pixels: int = PIXELS) -> None:
    page = Path(f"{overlay}.html")
    studio.run("tener", "explain", studio.chinese(overlay), LIBRARY, "--output", page, "--force")
    studio.open(page, size, pixels)
    studio.browser.run(CLICK_ENTITY, "上海图书馆")


def take_exported_page(studio: Studio) -> Image.Image:
    """The page of an exported model, with its first section and the list of entities."""
    page = Path("exported", "index.html")
    studio.run("tener", "export", studio.chinese("lac"), "--page", page, "--wasm", RUNTIME, "--force")
    studio.open(page)
    studio.browser.wait(lambda: studio.browser.run(IS_FOUND), SECONDS)  # the entities of the page's own example
    _enter(studio, NEWS)
    return studio.screenshot(studio.bottom("#main > section:nth-of-type(2)") + MARGIN)


def _enter(studio: Studio, texts: Sequence[str]) -> None:
    """Enter texts, one per line, and wait until the page displays the entities of all of them."""
    studio.browser.run(CHOOSE, "lines", "lines")
    studio.browser.run(ENTER, "\n".join(texts))
    studio.browser.wait(lambda: studio.browser.run(SHOWN, texts[-1]) and studio.browser.run(IS_FOUND), SECONDS)


PICTURES: dict[str, Callable[[Studio], Image.Image]] = {
    "annotate": take_annotation,
    "errors": take_errors,
    "explain": take_explanation,
    "explain-lac": take_lac_explanation,
    "explain-dark-phone": take_phone_explanation,
    "exported-page": take_exported_page,
    "review": take_review,
    "serve": take_service,
}


def encode(picture: Image.Image) -> bytes:
    """Return a picture as lossless WebP, with the largest number of colors at which it fits into MAX_BYTES.

    Screenshots have few colors, so that fewer colors change them less than lossy compression, which blurs text.
    """
    for colors in (256, 128, 64, 32):
        content = io.BytesIO()
        reduced = picture.quantize(colors, Image.Quantize.MEDIANCUT, kmeans=1, dither=Image.Dither.NONE)
        reduced.convert("RGB").save(content, "WEBP", lossless=True, quality=100, method=6)
        if content.tell() < MAX_BYTES:
            return content.getvalue()
    raise SystemExit(f"A picture of {picture.width} x {picture.height} pixels needs more than {MAX_BYTES:,} bytes.")


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which, of {', '.join(PICTURES)} (default: all)")
    parser.add_argument("--output", type=Path, default=ROOT / "docs" / "images", help="directory of the pictures")
    parser.add_argument("--work", type=Path, default=ROOT / "project" / "pictures", help="keeps pipelines and pages")
    args = parser.parse_args(argv)
    unknown = [name for name in args.names if name not in PICTURES]
    if unknown:
        parser.error(f"unknown: {', '.join(unknown)}; there are {', '.join(PICTURES)}")
    work = args.work.resolve()
    work.mkdir(parents=True, exist_ok=True)
    args.output.mkdir(parents=True, exist_ok=True)
    with open_browser() as browser:
        if not browser.run(HAS_FONT):
            raise SystemExit("There is no Chinese font. On Debian: apt-get install fonts-noto-cjk")
        browser.set_color_scheme("light")
        for name in args.names or PICTURES:
            content = encode(PICTURES[name](Studio(browser, work)))
            path = args.output / f"{name}.webp"
            write_bytes(path, content)
            print(f"{path}: {len(content) / 1000:.0f} kB", flush=True)


if __name__ == "__main__":
    main()
