"""Every specimen is killed by its check; no check can be left out."""

from functools import cache

import pytest

from oracle.judge.checks import ALL, coupled
from oracle.judge.context import PROFILES
from oracle.judge.loading import load_factory
from oracle.judge.significance import STAGES
from oracle.judge.trial import Result
from oracle.judge.verdict import Outcome

from .judging import FOLDED, bad, context, probed, verdict, verdicts
from .zoo import SPECIMENS
from .zoo.blocks import RARE
from .zoo.matrix import RECORDED
from .zoo.noise_law import WIDE
from .zoo.ranks import SHARED
from .zoo.specimen import Specimen

NAMES = [check.NAME for check in ALL]
# Faults of ranks need ranks: tests/distributed judges them, this one among them.
OVER_RANKS = {"ranks": "rank_local_seed"}
# The specimens that only one check sees: leave that check out, and they live.
ALONE = {
    "path": "never_replays",
    "bounds": "nan_leaves_vocabulary",
    "spike": "dead_id",
    "gates": "folds_fp8_head",
    "freshness": "restage_skip",
    "writeset": "stale_pad_rows",
    "retention": "results_are_views",
    "equality": "unclamped_claim",
    "invariance": "odd_bucket",
    "coupled": "hotter",
    "confidence": "unscaled_confidence",
    "accept_rule": "leftovers",
    "noise_law": "coarse_race",
    "independence": "shared_rows",
    "draft_law": "heavy_tile",
    "block_law": "foreign_hidden",
    "claim": "bent_temperature",
    "lossless": "repeated_last_row",
    "accept_length": "stops_at_tiles",
}
BY_ID = {specimen.id: specimen for specimen in SPECIMENS}


@cache
def judged(name: str, checks: tuple[str, ...]) -> dict[str, list[Result]]:
    """Results of the given checks on one specimen."""
    specimen = BY_ID[name]
    factory = load_factory(specimen.subject)
    return verdicts(factory, context(), (specimen.combination,), checks)


def killers(name: str) -> set[str]:
    """All checks that do not hold on a specimen."""
    return {check for check, results in judged(name, tuple(NAMES)).items() if bad(results)}


@pytest.mark.parametrize(
    "specimen",
    [
        # By default what is stale meets the one case that gives it its age: test_staleness.
        pytest.param(s, id=s.id, marks=pytest.mark.slow if s.killed_by == "freshness" else ())
        for s in SPECIMENS
    ],
)
def test_its_check_kills_it(specimen: Specimen) -> None:
    """The named killer answers violated, or unknown where it is `path`."""
    results = judged(specimen.id, (specimen.killed_by,))
    outcomes = {result.verdict.outcome for result in bad(results[specimen.killed_by])}
    wanted = Outcome.UNKNOWN if specimen.killed_by == "path" else Outcome.VIOLATED
    assert outcomes == {wanted}


ON_CUDA = [specimen for specimen in SPECIMENS if specimen.module in RECORDED]


@pytest.mark.gpu
@pytest.mark.parametrize("specimen", ON_CUDA, ids=lambda specimen: specimen.id)
def test_its_check_kills_it_under_cuda(specimen: Specimen) -> None:
    """A real graph shows the same fault to the same check."""
    factory, base = load_factory(specimen.subject), context(engine="cuda")
    results = verdicts(factory, base, (specimen.combination,), (specimen.killed_by,))
    outcomes = {result.verdict.outcome for result in bad(results[specimen.killed_by])}
    wanted = Outcome.UNKNOWN if specimen.killed_by == "path" else Outcome.VIOLATED
    assert outcomes == {wanted}


@pytest.mark.gpu
@pytest.mark.parametrize("check", sorted({specimen.killed_by for specimen in ON_CUDA}))
def test_a_sound_sampler_passes_under_cuda(check: str) -> None:
    """What kills there also lets live there."""
    results = verdicts(FOLDED, context(engine="cuda"), (("dspark", "counter"),), (check,))[check]
    assert not bad(results)
    assert any(result.verdict.outcome is Outcome.HOLDS for result in results)


@pytest.mark.slow
@pytest.mark.parametrize("specimen", SPECIMENS, ids=lambda specimen: specimen.id)
def test_its_blind_check_does_not_see_it(specimen: Specimen) -> None:
    """The named blind check holds, and does apply."""
    results = judged(specimen.id, (specimen.blind_to,))[specimen.blind_to]
    assert not bad(results)
    assert any(result.verdict.outcome is Outcome.HOLDS for result in results)


@pytest.mark.slow
@pytest.mark.parametrize("check", [name for name in NAMES if name not in OVER_RANKS])
def test_without_this_check_a_specimen_stays_alive(check: str) -> None:
    """For each check there is a fault that no other check sees."""
    assert killers(ALONE[check]) == {check}


@pytest.mark.slow
@pytest.mark.parametrize("specimen", RARE, ids=lambda specimen: specimen.id)
def test_a_rare_fault_is_killed_at_ci(specimen: Specimen) -> None:
    """What the sizes of the suite miss, the profile ci sees; its blind check still holds."""
    factory, base = load_factory(specimen.subject), context(profile=PROFILES["ci"])
    checks = (specimen.killed_by, specimen.blind_to)
    results = verdicts(factory, base, (specimen.combination,), checks)
    outcomes = {r.verdict.outcome for r in bad(results[specimen.killed_by])}
    assert outcomes == {Outcome.VIOLATED}
    assert any(r.verdict.outcome is Outcome.HOLDS for r in results[specimen.blind_to])
    assert not bad(results[specimen.blind_to])


@pytest.mark.slow
@pytest.mark.parametrize("specimen", WIDE, ids=lambda specimen: specimen.id)
def test_a_large_vocabulary_shows_what_small_ones_hide(specimen: Specimen) -> None:
    """Draws at the size of the ci profile kill it; at V = 8 and 128 and by its law it passes."""
    factory = load_factory(specimen.subject)
    small = verdicts(factory, context(), (specimen.combination,), ("coupled", specimen.blind_to))
    assert not any(bad(results) for results in small.values())
    base = probed(context(specimen.combination, profile=PROFILES["ci"]), factory)
    (*_, wide) = coupled.plans(base)
    answer = verdict("coupled", wide, base, factory)
    assert answer.outcome is Outcome.VIOLATED
    assert "rounding explains" in answer.reason


def test_every_specimen_is_described() -> None:
    """A story, a public reference, a killer and a blind check that exist, and a smallest size."""
    everyone = (*SPECIMENS, *RARE, *WIDE, *SHARED)
    assert len({specimen.id for specimen in everyone}) == len(everyone)
    assert set(ALONE) | set(OVER_RANKS) == set(NAMES)
    for specimen in everyone:
        assert len(specimen.story.split()) >= 20
        assert specimen.imitates.count("/") == 1
        assert specimen.imitates.count("#") == 1
        assert {specimen.killed_by, specimen.blind_to} <= set(NAMES)
        assert specimen.killed_by != specimen.blind_to
        assert specimen.smallest


@pytest.mark.parametrize(
    ("name", "words"),
    [
        pytest.param("staged_after_replay", "stale top_k", marks=pytest.mark.slow),
        ("rebound_buffer", "buffer temperature was moved"),
        pytest.param("restage_skip", "stale temperature", marks=pytest.mark.slow),
        ("stale_pad_rows", "buffer temperature: pad rows hold"),
        pytest.param("frozen_noise", "stale noise", marks=pytest.mark.slow),
    ],
)
def test_the_stale_buffer_is_named(name: str, words: str) -> None:
    """The verdict says which buffer it was."""
    specimen = BY_ID[name]
    found = judged(name, (specimen.killed_by,))[specimen.killed_by]
    reasons = [result.verdict.reason for result in bad(found)]
    assert any(words in reason for reason in reasons), reasons


def test_the_exact_tests_see_what_chi_square_merges_away() -> None:
    """An id that never comes, too rare for a cell of its own: chi-square alone convicts nobody."""
    (result,) = bad(judged("rarest_id", ("draft_law", "equality"))["draft_law"])
    assert "as likely under 'an id never drawn' as under the law" in result.verdict.reason
    assert all(fit["p_value"] > STAGES[1] for fit in result.verdict.evidence["fits"])
