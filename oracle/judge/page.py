"""A report as one HTML page: verdicts, evidence, figures, environment. It loads nothing else."""

from collections.abc import Iterable, Iterator, Mapping
from html import escape
from itertools import count, groupby
from typing import Any

from . import drawn, figures
from .exports import again_of
from .figures import Drawing
from .power import curves
from .report import announced, failures, not_run
from .verdict import Outcome

STYLE = """
:root { color-scheme: light dark; --paper: #ffffff; --panel: #f4f5f7; --ink: #1b1f24;
  --quiet: #57606a; --rule: #c4cad1; --one: #0b5cad; --two: #9a4b00; --bad: #b3261e; --ok: #1a7f4b;
  --bad-panel: #fdf0ef }
@media (prefers-color-scheme: dark) { :root { --paper: #14171b; --panel: #1e2329; --ink: #e7ebef;
  --quiet: #a3adb8; --rule: #4a535d; --one: #7db8f5; --two: #f0a860; --bad: #ff8f86; --ok: #5ccf94;
  --bad-panel: #33201f } }
* { box-sizing: border-box }
body { margin: 0 auto; max-width: 76rem; padding: 1rem; background: var(--paper);
  color: var(--ink); font: 16px/1.5 system-ui, sans-serif; overflow-wrap: anywhere }
h1 { font-size: 1.5rem; line-height: 1.25 } h2 { font-size: 1.2rem; margin-top: 2.5rem }
h3 { font-size: 1rem; margin: 0 } p { max-width: 46rem } a { color: var(--one) }
code, pre { font: 0.85rem/1.45 ui-monospace, monospace }
pre { background: var(--panel); padding: 0.75rem; border-radius: 6px; white-space: pre-wrap }
table { border-collapse: collapse; width: 100% }
caption { text-align: left; color: var(--quiet); padding-bottom: 0.5rem }
th, td { text-align: left; vertical-align: top; padding: 0.45rem 0.75rem 0.45rem 0;
  border-top: 1px solid var(--rule) }
td.number, th.number { text-align: right; white-space: nowrap }
th[scope="row"] { white-space: nowrap } .quiet { color: var(--quiet) }
.verdict { font-weight: 600; white-space: nowrap }
.holds { color: var(--ok) } .violated, .errored { color: var(--bad) } .unknown { color: var(--two) }
.expected { color: var(--one) }
.failure { background: var(--bad-panel); border-left: 4px solid var(--bad); border-radius: 6px;
  padding: 0.75rem 1rem; margin: 1rem 0 }
.failure.known { background: var(--panel); border-left-color: var(--one) }
.figures { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(20rem, 100%), 1fr));
  gap: 1.25rem }
figure { margin: 0 } figure svg { width: 100%; height: auto; display: block }
figcaption { font-size: 0.9rem; font-weight: 600; margin-bottom: 0.25rem }
svg text { font-family: system-ui, sans-serif !important }
@media (max-width: 44rem) { table.checks thead { position: absolute; left: -100vw }
  table.checks, table.checks tbody, table.checks tr, table.checks th, table.checks td
    { display: block; border: 0; padding: 0 }
  table.checks caption { display: block }
  table.checks tr { border-top: 1px solid var(--rule); padding: 0.6rem 0 }
  table.checks td.number { text-align: left; white-space: normal }
  table.checks td[data-name]::before { content: attr(data-name) ": "; color: var(--quiet) } }
"""
BAND = "Bands hold every point of a figure with probability 99.9 %."
# Heading, what it shows, and what is said where a report holds nothing of the kind.
SECTIONS = {
    "fit": (
        "Observed and expected",
        f"Every cell of the laws that draws are held against. {BAND} Crosses lie outside.",
        "No check of this report holds counts beside the probabilities of their law.",
    ),
    "noise": (
        "Gumbel noise",
        f"Quantiles of -log E at the edges of its octaves, in powers of two. {BAND}",
        "The subject shows no noise, so there are no quantiles of it.",
    ),
    "ages": (
        "Replays",
        (
            "A chain of loads of which no two are alike. Green: a replay used what was loaded for "
            "it. Else: the age of the value that it used, 0 for one from before the first load."
        ),
        "No chain of loads was played.",
    ),
    "power": (
        "Power",
        "By the size of a fault, how surely each statistical check finds it. Dashed: 95 %.",
        "No statistical check of this report has draws to compute a power from.",
    ),
}


def page(report: Mapping[str, Any]) -> str:
    """The whole page."""
    run = report["run"]
    title = f"draftproof: {run['subject']} {report['verdict']}"
    body = "\n".join(
        (
            *top(report),
            *checks(report),
            *findings(report),
            *plots(report),
            *skipped(report),
            *environment(report),
        )
    )
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        # Without an icon of its own a browser asks its server for one.
        f'<link rel="icon" href="data:,">\n<title>{escape(title)}</title>\n'
        f"<style>{STYLE}</style>\n</head>\n<body>\n{body}\n</body>\n</html>\n"
    )


def verdict(text: str) -> str:
    """A verdict in its colour."""
    return f'<span class="verdict {escape(text.replace(" ", "-"))}">{escape(text)}</span>'


def top(report: Mapping[str, Any]) -> Iterator[str]:
    """What was judged, and the sum of it."""
    run, found = report["run"], report["environment"]
    where = found.get("gpu", found["machine"])
    counts = ", ".join(f"{n} {name}" for name, n in report["counts"].items() if n)
    spent = sum(report["alarm_spent"].values())
    part = f", shard {run['shard']} of {run['shards']}" if run["shard"] else ""
    yield f"<header><h1>{escape(run['subject'])}: {verdict(report['verdict'])}</h1>"
    words = (
        f"Engine {run['engine']} on {run['device']} ({where}), workload {run['workload']}, "
        f"profile {run['profile']}, seed {run['seed']}{part}."
    )
    yield f"<p>{escape(words)}</p>"
    yield (
        f"<p>{escape(counts)}; false-alarm probability spent {spent:.1e} of {report['alpha']:.0e}; "
        f"exit code {report['exit_code']}.</p>"
    )
    yield f"<pre>{escape(run['reproduce'])}</pre></header><main>"


def checks(report: Mapping[str, Any]) -> Iterator[str]:
    """One row a check."""
    yield "<h2>Checks</h2>"
    yield '<table class="checks"><caption>Claim of each check, and the smallest fault it would '
    yield "have seen</caption><thead><tr>"
    yield from (f'<th scope="col">{name}</th>' for name in ("check", "verdict", "claim"))
    yield from (f'<th scope="col" class="number">{name}</th>' for name in ("used", "seconds"))
    yield "</tr></thead><tbody>"
    for row in report["checks"]:
        used = f"{row['used']:,} {row['unit']}" if row["used"] else "-"
        effect = row["smallest_detectable_effect"]
        sees = f'<br><span class="quiet">sees: {escape(effect)}</span>' if effect else ""
        yield (
            f'<tr><th scope="row"><code>{escape(row["check"])}</code></th>'
            f"<td>{verdict(row['verdict'])}</td><td>{escape(row['claim'])}{sees}</td>"
            f'<td class="number" data-name="used">{escape(used)}</td>'
            f'<td class="number" data-name="seconds">{row["seconds"]:.1f}</td></tr>'
        )
    yield "</tbody></table>"


def findings(report: Mapping[str, Any]) -> Iterator[str]:
    """What does not hold, findings of one reason together."""
    groups = list(failures(report))
    if groups:
        yield "<h2>Findings</h2>"
    for group in groups:
        row, case = group[0]
        title = f"{row['check']}, {case['combination']}, {case['case']}"
        again = again_of(report, row["check"], case["combination"])
        same = f"<p>The same in {len(group) - 1} more.</p>" if len(group) > 1 else ""
        known = announced(case)
        kind = "failure known" if known else "failure"
        why = f"<p>Expected: {escape(known[0])} {linked(known[1])}</p>" if known else ""
        yield (
            f'<section class="{kind}"><h3>{verdict(case["verdict"])}: {escape(title)}</h3>'
            f"<p>{escape(case['reason'])}</p>{why}{same}<pre>{escape(again)}</pre></section>"
        )


def linked(address: str) -> str:
    """A public address as a link; anything else as a text."""
    text = escape(address)
    return f'<a href="{text}">{text}</a>' if address.startswith("https://") else text


def drawings(report: Mapping[str, Any]) -> Iterator[tuple[str, Drawing]]:
    """Every figure with the key of its section."""
    numbers = count(1)
    for cells in drawn.cells(report):
        if len(cells.hits):
            yield "fit", figures.expected(cells, next(numbers))
            yield "fit", figures.residuals(cells, next(numbers))
    by_label = groupby(drawn.quantiles(report), key=lambda one: one.combination)
    for _, sources in by_label:
        seen = [one for one in sources if len(one.observed)]
        if seen:
            yield "noise", figures.noise(seen, next(numbers))
    for line in drawn.ages(report):
        yield "ages", figures.replays(line, next(numbers))
    for curve in curves(report):
        yield "power", figures.power(curve, next(numbers))


def plots(report: Mapping[str, Any]) -> Iterator[str]:
    """The figures by section; a section without any says why."""
    found: dict[str, list[Drawing]] = {}
    for key, drawing in drawings(report):
        found.setdefault(key, []).append(drawing)
    for key, (heading, words, absent) in SECTIONS.items():
        yield f"<h2>{heading}</h2>"
        yield f"<p>{escape(words if key in found else absent)}</p>"
        if key in found:
            yield '<div class="figures">'
            yield from (
                f"<figure><figcaption>{escape(one.caption)}</figcaption>{one.svg}</figure>"
                for one in found[key]
            )
            yield "</div>"


def skipped(report: Mapping[str, Any]) -> Iterator[str]:
    """What did not apply, and why."""
    reasons = list(not_run(report))
    if reasons:
        yield "<h2>Not applicable</h2><ul>"
        yield from (f"<li>{escape(reason)}</li>" for reason in reasons)
        yield "</ul>"


def environment(report: Mapping[str, Any]) -> Iterator[str]:
    """Versions, machine, variables; digests of what was judged and of the judge."""
    yield "<h2>Environment</h2><table><caption>Where the run took place</caption><tbody>"
    rows: Iterable[tuple[str, Any]] = report["environment"].items()
    for name, value in (*rows, ("sources", report["run"]["source"])):
        text = ", ".join(f"{k}={v}" for k, v in value.items()) if isinstance(value, dict) else value
        yield f'<tr><th scope="row">{escape(name)}</th><td>{escape(str(text)) or "none"}</td></tr>'
    yield "</tbody></table></main>"
    held = report["counts"][Outcome.HOLDS.value]
    yield f'<footer class="quiet"><p>{held} cases hold.</p></footer>'
