"""Who may import what: the table of the rooms, and the names that belong to few."""

# file -> what it may import besides the standard library. ".x" is a module of the file's own side.
# The first row that matches counts, and a file without a row is an error.
TABLE = {
    # oracle
    "oracle/__init__.py": ".judge.history .judge.protocol .judge.script .judge.verdict <dynamic>",
    "oracle/__main__.py": ".commands .judge",
    "oracle/commands.py": "typer rich torch .decoder .exporter .judge.* .nightly .options .planner "
    ".recorder .rejudge",
    "oracle/decoder.py": "typer rich torch .judge.* .options .workloads.*",
    "oracle/exporter.py": "typer .judge.evidence .judge.exports .judge.page .judge.shards .options",
    "oracle/rejudge.py": "typer rich .judge.archive .judge.verdict .options",
    "oracle/recorder.py": "typer .judge.vectors.store",
    "oracle/planner.py": "typer rich torch numpy .judge.* .reference.* .workloads.synthetic",
    "oracle/nightly.py": "typer rich .judge.* .options",
    "oracle/options.py": "typer .judge.expected .judge.merge .judge.place .judge.trial",
    "oracle/plugin.py": "pytest .judge.*",
    "oracle/strategies.py": "hypothesis torch .judge.* .workloads.synthetic",
    "oracle/conformance/*.py": "pytest .judge.*",
    "oracle/reference/__init__.py": "",
    "oracle/reference/logits.py": "torch",
    "oracle/reference/bias.py": "torch .reference.logits",
    "oracle/reference/noise.py": "torch numpy",
    "oracle/reference/choice.py": "torch .reference.logits",
    "oracle/reference/draft.py": "torch .reference.logits .reference.bias .reference.choice",
    "oracle/reference/confidence.py": "torch .reference.logits .reference.bias",
    "oracle/reference/filters.py": "torch",
    "oracle/reference/acceptance.py": "torch .reference.choice",
    "oracle/reference/shards.py": "torch .reference.choice",
    "oracle/reference/gate.py": "",
    "oracle/reference/law.py": "torch .reference.*",
    "oracle/reference/committed.py": "torch .reference.filters .reference.law",
    "oracle/judge/__init__.py": "",
    "oracle/judge/protocol.py": "torch",
    "oracle/judge/script.py": "torch .judge.protocol",
    "oracle/judge/history.py": "torch safetensors jsonschema .judge.budget .judge.script "
    ".judge.protocol",
    "oracle/judge/archive.py": "jsonschema .judge.answer .judge.budget .judge.history "
    ".judge.redraw .judge.trial .judge.verdict",
    "oracle/judge/drive.py": "torch .judge.counting .judge.fields .judge.protocol .judge.script "
    ".judge.history .judge.redraw",
    "oracle/judge/fields.py": ".judge.protocol .judge.walk",
    "oracle/judge/counting.py": "torch .judge.fields",
    "oracle/judge/margin.py": "numpy",
    "oracle/judge/significance.py": "numpy scipy",
    "oracle/judge/bank.py": "numpy scipy .judge.significance",
    "oracle/judge/scan.py": "numpy scipy .judge.significance",
    "oracle/judge/goodness.py": "numpy .judge.bank .judge.scan .judge.significance",
    "oracle/judge/binomial.py": "numpy scipy .judge.significance",
    "oracle/judge/transform.py": "torch",
    "oracle/judge/chain.py": "torch numpy .reference.* .judge.bank .judge.binding "
    ".judge.binomial .judge.protocol .judge.significance",
    "oracle/judge/sums.py": "numpy .judge.bank .judge.evidence .judge.significance",
    "oracle/judge/prefix_law.py": "torch numpy .reference.* .judge.bank .judge.binding "
    ".judge.chain .judge.protocol .judge.scan .judge.significance .judge.transform",
    "oracle/judge/budget.py": "",
    "oracle/judge/pace.py": "torch .judge.context .judge.coupling .judge.drive .judge.history "
    ".judge.loading .judge.margin .judge.protocol .judge.script .judge.trial",
    "oracle/judge/planning.py": "numpy .judge.bank .judge.scan .judge.significance",
    "oracle/judge/verdict.py": "",
    "oracle/judge/foretold.py": "torch numpy .reference.noise .judge.history .judge.protocol "
    ".judge.redraw .judge.verdict",
    "oracle/judge/redraw.py": "torch .reference.* .judge.protocol",
    "oracle/judge/context.py": "torch .judge.protocol",
    "oracle/judge/binding.py": "torch .reference.* .judge.protocol",
    "oracle/judge/head_margin.py": "numpy .judge.margin",
    "oracle/judge/walk.py": "torch numpy .reference.* .judge.margin .judge.head_margin "
    ".judge.binding .judge.protocol",
    "oracle/judge/features.py": "",
    "oracle/judge/explained.py": "",
    "oracle/judge/coupling.py": "torch numpy .reference.* .judge.margin .judge.protocol "
    ".judge.redraw .judge.walk",
    "oracle/judge/lattice.py": "numpy scipy",
    "oracle/judge/parity.py": "torch .reference.* .judge.continuity .judge.coupling .judge.history "
    ".judge.margin .judge.protocol .judge.staleness .judge.timeline .judge.verdict .judge.walk",
    "oracle/judge/timeline.py": "torch .judge.coupling .judge.history .judge.protocol",
    "oracle/judge/attribution.py": "torch numpy .reference.* .judge.margin .judge.coupling "
    ".judge.protocol .judge.significance .judge.timeline .judge.walk",
    "oracle/judge/staleness.py": "torch .reference.* .judge.attribution .judge.margin "
    ".judge.timeline",
    "oracle/judge/answer.py": ".judge.budget .judge.checks .judge.context .judge.history "
    ".judge.margin .judge.sums .judge.verdict",
    "oracle/judge/device.py": "torch .judge.loading .judge.protocol",
    "oracle/judge/trial.py": "torch .judge.answer .judge.protocol .judge.script .judge.drive "
    ".judge.history .judge.context .judge.checks .judge.budget .judge.verdict .judge.loading "
    ".judge.device .judge.fields "
    ".judge.environment .judge.merge .judge.seeds .workloads.*",
    "oracle/judge/shards.py": "jsonschema .judge.answer .judge.budget .judge.checks .judge.context "
    ".judge.evidence .judge.history .judge.loading .judge.report .judge.script .judge.sums "
    ".judge.trial .judge.verdict",
    "oracle/judge/place.py": "torch",
    "oracle/judge/carried.py": ".judge.context .judge.report .judge.trial .judge.verdict",
    "oracle/judge/question.py": ".judge.budget .judge.trial .judge.verdict",
    "oracle/judge/suite.py": "torch .judge .judge.*",
    "oracle/judge/crew.py": "",
    "oracle/judge/jobs.py": "torch .judge.budget .judge.checks .judge.context .judge.crew "
    ".judge.device "
    ".judge.loading .judge.trial .judge.verdict",
    "oracle/judge/expected.py": "jsonschema .judge.trial .judge.verdict",
    "oracle/judge/report.py": "rich jsonschema .judge.verdict .judge.budget .judge.checks "
    ".judge.trial .judge.environment",
    "oracle/judge/exports.py": ".judge.report .judge.verdict",
    "oracle/judge/drawn.py": "numpy scipy .judge.lattice .judge.significance .judge.sums",
    "oracle/judge/power.py": "numpy .judge.bank .judge.binomial .judge.budget .judge.checks "
    ".judge.checks.* .judge.drawn .judge.goodness .judge.significance .judge.sums",
    "oracle/judge/figures.py": "matplotlib numpy .judge.drawn .judge.power",
    "oracle/judge/page.py": ".judge.drawn .judge.exports .judge.figures .judge.power .judge.report "
    ".judge.verdict",
    "oracle/judge/merge.py": "torch torch.distributed .judge.history .judge.budget .judge.verdict",
    "oracle/judge/vectors/__init__.py": "",
    "oracle/judge/vectors/*.py": "torch numpy jsonschema .reference.* .judge.margin "
    ".judge.binding .judge.walk .judge.checks.gates .judge.vectors.*",
    "oracle/judge/seeds.py": "",
    "oracle/judge/evidence.py": "numpy jsonschema .judge.significance",
    "oracle/judge/sequential.py": "numpy scipy .judge.bank .judge.evidence .judge.significance "
    ".judge.verdict",
    "oracle/judge/campaign.py": ".judge.evidence .judge.merge .judge.night",
    "oracle/judge/night.py": ".judge.evidence .judge.sequential .judge.stream .judge.verdict",
    "oracle/judge/stream.py": "torch numpy .reference.law .judge.bank .judge.checks "
    ".judge.checks.claim .judge.checks.draft_law .judge.checks.lossless .judge.context "
    ".judge.drive .judge.exported "
    ".judge.environment .judge.evidence .judge.history .judge.loading .judge.script .judge.seeds "
    ".judge.sequential .judge.significance .judge.trial .judge.verdict",
    "oracle/judge/exported.py": "numpy torch .judge.checks.claim .judge.history "
    ".judge.significance",
    "oracle/judge/decoding.py": "torch .reference.* .judge.margin",
    "oracle/judge/reading.py": "torch .judge.decoding .judge.margin",
    "oracle/judge/betting.py": "numpy scipy .judge.significance",
    "oracle/judge/acceptance_figure.py": "torch .judge.checks.decode_drafts",
    "oracle/judge/decode_trial.py": "torch .judge.answer .judge.budget .judge.checks "
    ".judge.decoding .judge.environment .judge.history .judge.reading .judge.trial .judge.verdict",
    "oracle/judge/loading.py": ".judge.protocol .judge.verdict <dynamic>",
    "oracle/judge/continuity.py": "torch",
    "oracle/judge/environment.py": "torch",
    "oracle/judge/checks/__init__.py": ".judge.checks.*",
    "oracle/judge/checks/*.py": "torch numpy .reference.* .judge.script .judge.history "
    ".judge.verdict .judge.margin .judge.significance .judge.budget .judge.protocol "
    ".judge.context .judge.coupling .judge.goodness .judge.walk .judge.attribution "
    ".judge.foretold "
    ".judge.continuity .judge.merge .judge.parity .judge.seeds .judge.bank .judge.scan "
    ".judge.chain .judge.lattice .judge.transform .judge.binding .judge.binomial "
    ".judge.prefix_law .judge.staleness .judge.sums .judge.timeline .judge.checks.lateness "
    ".judge.checks.sampling .judge.checks.gates .judge.checks.wide .judge.betting "
    ".judge.reading .workloads.synthetic",
    "oracle/subjects/__init__.py": "",
    "oracle/subjects/reference.py": "torch numpy .reference.* .judge.protocol .judge.binding",
    "oracle/subjects/torch_ops.py": "torch .judge.protocol",
    "oracle/subjects/alone.py": "<dynamic>",
    "oracle/subjects/sglang/*.py": "torch numpy triton .judge.protocol .subjects.alone "
    ".subjects.sglang.* .subjects.stepwise",
    "oracle/subjects/stepwise.py": "torch .judge.protocol",
    "oracle/subjects/vllm.py": "torch triton .judge.protocol .subjects.alone .subjects.stepwise",
    "oracle/subjects/flashinfer.py": "torch .judge.protocol .subjects.alone .subjects.stepwise",
    "oracle/workloads/__init__.py": "",
    "oracle/workloads/synthetic.py": "torch .judge.context",
    "oracle/workloads/smollm2.py": "torch numpy transformers gguf .judge.protocol",
    "oracle/workloads/llama.py": "torch",
    "oracle/workloads/plain.py": "torch",
    "oracle/workloads/corpus.py": "torch .workloads.llama .workloads.smollm2",
    "oracle/workloads/drafter.py": "torch .workloads.corpus",
    "oracle/workloads/fitting.py": "torch safetensors .workloads.*",
    "oracle/workloads/real.py": "torch .judge.context .workloads.smollm2",
    # impl
    "impl/__init__.py": ".sampler .proposer .runner .shapes <dynamic>",
    "impl/config.py": "",
    "impl/shapes.py": "torch",
    "impl/backbone.py": "torch .shapes",
    "impl/buffers.py": "torch .shapes",
    "impl/logits.py": "torch",
    "impl/bias.py": "torch",
    "impl/noise.py": "torch",
    "impl/choice.py": "torch",
    "impl/confidence.py": "torch",
    "impl/residual.py": "torch",
    "impl/filters.py": "torch",
    "impl/claim.py": "torch",
    "impl/coins.py": "torch .noise",
    "impl/acceptance.py": "torch .residual",
    "impl/target.py": "torch .acceptance",
    "impl/epilogue.py": "torch .shapes .acceptance .buffers .runner .stages .target .graph.engine",
    "impl/acceptor.py": "torch .gate .noise .acceptance .claim .coins .epilogue .filters .stages "
    ".target",
    "impl/shards.py": "torch torch.distributed .choice",
    "impl/ranks.py": "torch .gate .shapes .buffers .stages .draft .shards .logits .bias .noise",
    "impl/gate.py": "",
    "impl/fused.py": "torch .acceptance .bias .buffers .logits .noise .kernels.*",
    "impl/stages.py": "torch .logits .bias .noise .choice .confidence .acceptance .fused",
    "impl/draft.py": "torch .shapes .buffers .stages .shards .logits .bias .noise .confidence",
    "impl/plan.py": "torch .confidence .config .shards .stages",
    "impl/proposal.py": "torch .sampler",
    "impl/sampler.py": "torch .plan .shapes .config .gate .buffers .stages .draft .logits "
    ".bias .noise "
    ".confidence .epilogue .fused .shards .ranks",
    "impl/runner.py": "torch .shapes .buffers .noise .graph .graph.engine",
    "impl/proposer.py": "torch .plan .proposal .shapes .config .gate .buffers .stages .draft "
    ".logits .bias .noise "
    ".shards .sampler .runner .borrowed .graph.engine .acceptor .target",
    "impl/borrowed.py": "torch",
    "impl/tally.py": "torch .buffers .graph.engine",
    "impl/setting.py": "torch .bias .buffers .confidence .config .logits .plan .shards",
    "impl/facts.py": "torch .shards .ranks .plan .bias .config .gate .logits .sampler",
    "impl/assembly.py": "torch .plan .config .stages .logits .bias .noise .sampler .runner "
    ".proposer "
    ".graph .graph.engine .acceptor .coins .epilogue .fused .shards .ranks",
    "impl/subject.py": "torch .tally .plan .proposal .setting .gate .buffers .stages .noise "
    ".facts .sampler .runner .proposer .assembly .backbone .graph .graph.engine "
    ".target",
    "impl/decoding/__init__.py": "",
    "impl/decoding/network.py": "torch",
    "impl/decoding/request.py": "torch",
    "impl/decoding/drafter.py": "torch .buffers",
    "impl/decoding/loop.py": "torch .acceptor .proposal .proposer .sampler .target "
    ".decoding.network .decoding.request",
    "impl/decoding/subject.py": "torch .assembly .bias .config .graph .graph.engine .logits .plan "
    ".stages .decoding.*",
    "impl/graph/__init__.py": "torch .graph.engine .graph.cuda .graph.emulator .graph.hazard",
    "impl/graph/engine.py": "torch",
    "impl/graph/cuda.py": "torch .graph.engine .graph.hazard",
    "impl/graph/emulator.py": "torch .graph.engine .graph.hazard .graph.memory .graph.plan "
    ".graph.tape",
    "impl/graph/hazard.py": "torch",
    "impl/graph/memory.py": "torch .graph.hazard",
    "impl/graph/plan.py": "torch .graph.hazard",
    "impl/graph/tape.py": "torch .graph.hazard .graph.memory .graph.plan",
    "impl/kernels/__init__.py": "",
    "impl/kernels/philox.py": "triton",
    "impl/kernels/noise.py": "torch triton .kernels.philox",
    "impl/kernels/order.py": "triton",
    "impl/kernels/contest.py": "triton .kernels.order .kernels.philox",
    "impl/kernels/rounding.py": "triton",
    "impl/kernels/step.py": "triton .kernels.contest .kernels.order .kernels.philox "
    ".kernels.rounding",
    "impl/kernels/chain.py": "torch triton .kernels.order .kernels.step",
    "impl/kernels/acceptance.py": "torch triton .kernels.order .kernels.chain .kernels.head",
    "impl/kernels/residual.py": "triton",
    "impl/kernels/rejection.py": "torch triton .kernels.acceptance .kernels.chain "
    ".kernels.residual",
    "impl/kernels/head.py": "torch triton .kernels.order .kernels.chain .kernels.rounding",
}

# Who may name a third party at all; every other project file may not. (The table is narrower for
# single files; these rows say what no table row may ever grant.)
EXCLUSIVE = {
    "hypothesis": ("tests/*", "conftest.py", "oracle/strategies.py"),
    "pytest": (
        "tests/*",
        "conftest.py",
        "oracle/plugin.py",
        "oracle/conformance/*",
        ".github/recipes/*",
    ),
    "triton": ("impl/kernels/*", "tests/kernels/*", "oracle/subjects/*"),
    "torch.distributed": (
        "impl/shards.py",
        "impl/graph/*",
        "oracle/judge/merge.py",
        "tests/distributed/*",
        "tests/test_emulator.py",  # records collectives
    ),
    "matplotlib": ("oracle/judge/figures.py", "tests/benchmarks/figure.py", "tests/zoo/figure.py"),
    "oracle.subjects": ("oracle/judge/loading.py", "tests/*"),
    "tests": ("tests/*", "conftest.py"),
}

# Who may read the environment, and which variables; the others get what they need as arguments.
ENVIRONMENT_READERS = {
    "impl/config.py": "DRAFTPROOF_*",
    "oracle/judge/environment.py": "DRAFTPROOF_*",  # prints them as found, and acts on none
    "oracle/plugin.py": "DRAFTPROOF_SUBJECT",
    "oracle/subjects/alone.py": "DRAFTPROOF_*",  # where each shipped package lies
    "oracle/workloads/smollm2.py": "DRAFTPROOF_SMOLLM2",
}
