"""The page of a report: it stands alone, reads in any browser, and says what is stale."""

import json
import os
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from oracle.judge.page import SECTIONS, page

from .browser import BINARY, browser
from .test_interfaces import run

pytestmark = pytest.mark.slow
CI = os.environ.get("CI") == "true"  # noqa: TID251  (a matter of the test run)
STALE = ("--subject", "tests.zoo.memory:staged_after_replay", "--check", "freshness")
WIDTHS = (1280, 390)
# What sticks out of the page; the contrast of every text with the ground that it stands on.
OUTSIDE = """[...document.querySelectorAll('body *')]
  .filter(e => e.getBoundingClientRect().right > document.documentElement.clientWidth + 1
            && !e.closest('thead'))
  .map(e => e.tagName + ' ' + e.textContent.slice(0, 40))"""
CONTRAST = """(() => {
  const rgb = text => text.match(/[\\d.]+/g).map(Number);
  const light = c => { const [r, g, b] = c.slice(0, 3).map(v => { v /= 255;
    return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4 });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b };
  const ground = e => { for (; e; e = e.parentElement) { const c = rgb(
    getComputedStyle(e).backgroundColor); if (c.length < 4 || c[3] > 0) return c }
    return [255, 255, 255] };
  let worst = [99, ''];
  for (const e of document.querySelectorAll('body *')) {
    const own = [...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim());
    if (!own || e.closest('style, defs')) continue;
    // The ages in the cells of a timeline stand on the colour of their cell.
    if (e.closest('svg') && e.textContent.trim().length < 2) continue;
    const style = getComputedStyle(e);
    const a = light(rgb(e.closest('svg') ? style.fill : style.color)), b = light(ground(e));
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < worst[0]) worst = [ratio, e.textContent.slice(0, 40)];
  }
  return worst })()"""


class Reader(HTMLParser):
    """Tags with their attributes, in order; headings by level."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note one tag."""
        self.tags.append((tag, dict(attrs)))


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """A whole run that holds, and one with stale buffers."""
    folder, found = tmp_path_factory.mktemp("reports"), {}
    for name, code, words in (("held", 0, ("--jobs", "1")), ("stale", 1, STALE)):
        file = folder / f"{name}.json"
        assert run("verify", *words, "--json", str(file))[0] == code
        found[name] = json.loads(file.read_text())
    return found


def test_a_page_loads_nothing_and_names_everything(reports: dict[str, dict[str, Any]]) -> None:
    """No script and no address; every figure has words, every heading cell a scope."""
    for report in reports.values():
        found = Reader(page(report))
        names = [tag for tag, _ in found.tags]
        assert not {"script", "img", "iframe", "image"} & set(names)
        for tag, given in found.tags:
            for attribute in ("src", "href", "xlink:href"):
                if target := given.get(attribute):
                    assert target.startswith(("#", "data:")), (tag, target)
            assert tag != "svg" or (given["role"], bool(given["aria-label"])) == ("img", True)
            assert tag != "th" or given["scope"] in ("row", "col")
        assert dict(found.tags)["html"]["lang"] == "en"
        levels = [int(tag[1]) for tag in names if tag in ("h1", "h2", "h3")]
        assert levels[0] == 1
        assert levels.count(1) == 1
        assert all(after <= before + 1 for before, after in pairwise(levels))
        ids = [given["id"] for _, given in found.tags if "id" in given]
        assert len(ids) == len(set(ids))
        assert names.count("figure") == names.count("figcaption") == names.count("svg")


def test_every_section_is_drawn_or_says_why_not(reports: dict[str, dict[str, Any]]) -> None:
    """A whole run has all figures; a part of one says what it lacks."""
    text = page(reports["held"])
    for heading, _, absent in SECTIONS.values():
        assert f"<h2>{heading}</h2>" in text
        assert absent not in text
    text = page(reports["stale"])
    assert SECTIONS["fit"][2] in text
    assert SECTIONS["ages"][2] not in text


def test_a_page_marks_what_is_stale_and_since_when(reports: dict[str, dict[str, Any]]) -> None:
    """In words for a reader who sees no figure, too; text of a sampler is no markup."""
    report = reports["stale"]
    text = page(report)
    assert "temperature stale in replays 4, 5, 6" in text
    assert "nothing stale" in page(reports["held"])
    report["checks"][0]["cases"][0] |= {"verdict": "violated", "reason": "<b onload=x> & co"}
    assert "&lt;b onload=x&gt; &amp; co" in page(report)


def test_what_is_expected_says_why_and_links(reports: dict[str, dict[str, Any]]) -> None:
    """It is no failure to the eye; what is no public address is no link."""
    report = json.loads(json.dumps(reports["stale"]))
    cases = [case for row in report["checks"] for case in row["cases"]]
    seen = [case for case in cases if case["verdict"] == "violated"]
    for case in seen:
        case["verdict"] = "expected"
        case["evidence"] |= {"expected": "a <bug>", "reference": "https://example.org/old"}
    links = [given["href"] for tag, given in Reader(page(report)).tags if tag == "a"]
    assert links
    assert set(links) == {"https://example.org/old"}
    assert page(report).count('<section class="failure known">') == len(links)
    assert "Expected: a &lt;bug&gt;" in page(report)
    for case in seen:
        case["evidence"]["reference"] = "javascript:alert(1)"
    assert "a" not in [tag for tag, _ in Reader(page(report)).tags]


@pytest.mark.skipif(BINARY is None and not CI, reason="no Chromium is on the path")
def test_a_browser_shows_the_page(reports: dict[str, dict[str, Any]], tmp_path: Path) -> None:
    """At two widths and in two themes: no complaint, no request, nothing cut off, good contrast."""
    with browser() as shown:
        for name, report in reports.items():
            file = tmp_path / f"{name}.html"
            file.write_text(page(report), encoding="utf-8")
            for width in WIDTHS:
                for dark in (False, True):
                    shown.asked.clear()
                    shown.show(file, width, dark=dark)
                    where = f"{name} at {width}, dark {dark}"
                    assert shown.said == [], where
                    assert shown.asked == [file.as_uri()], where
                    assert shown.value("document.documentElement.scrollWidth") <= width, where
                    assert shown.value(OUTSIDE) == [], where
                    ratio, text = shown.value(CONTRAST)
                    assert ratio >= 4.5, f"{where}: {text!r}"
                    picture = tmp_path / f"{name}-{width}-{dark}.png"
                    shown.picture(picture)
                    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.skipif(BINARY is None and not CI, reason="no Chromium is on the path")
def test_a_browser_tells_what_is_wrong(tmp_path: Path) -> None:
    """The same questions find a script that throws, a file, a box too wide, a pale text."""
    file = tmp_path / "bad.html"
    file.write_text(
        "<!doctype html><title>x</title><link rel=icon href='data:,'>"
        "<div style='width: 3000px'>wide</div><p style='color: #999'>pale</p>"
        "<img src='absent.png'><script>throw new Error('moon')</script>"
    )
    with browser() as shown:
        shown.show(file, 390, dark=False)
        assert any("moon" in text for text in shown.said)
        assert any("absent.png" in address for address in shown.asked)
        assert shown.value(OUTSIDE)
        assert shown.value(CONTRAST)[0] < 4.5
