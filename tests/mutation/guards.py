"""Which tests guard a module: its mutants must fail one of them."""

# module -> files below tests/. A file that is not named here may notice a mutant as well; these
# are the ones that a reader would change together with the module.
GUARDS: dict[str, tuple[str, ...]] = {
    "oracle.reference.choice": ("test_choice.py",),
    "oracle.reference.noise": ("test_noise.py", "test_counter_coins.py"),
    "oracle.reference.law": ("test_law.py",),
    "oracle.reference.acceptance": ("test_acceptance_reference.py", "test_acceptance_rows.py"),
    "oracle.reference.committed": ("test_committed.py",),
    "oracle.reference.filters": ("test_filters_reference.py",),
    "oracle.reference.shards": ("test_shards_reference.py",),
    "oracle.reference.bias": ("test_bias.py", "test_heads_reference.py"),
    "oracle.reference.draft": ("test_draft_reference.py",),
    "oracle.reference.confidence": ("test_heads_reference.py",),
    "oracle.reference.gate": ("test_gate.py",),
    "oracle.judge.significance": ("test_significance_numbers.py",),
    "oracle.judge.binomial": ("test_binomial.py",),
    "oracle.judge.budget": ("test_judge.py",),
    "oracle.judge.margin": ("test_margin.py",),
    "oracle.judge.coupling": ("test_coupling.py", "test_unbounded.py"),
    "oracle.judge.bank": ("test_bank_numbers.py",),
    "oracle.judge.scan": ("test_scan_numbers.py",),
    "oracle.judge.goodness": ("test_goodness_numbers.py",),
    "oracle.judge.lattice": ("test_lattice_numbers.py",),
}


def source_of(module: str) -> str:
    """The path of a module below the root of the checkout."""
    return module.replace(".", "/") + ".py"
