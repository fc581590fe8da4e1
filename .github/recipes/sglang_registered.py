"""A registered test file for SGLang's CI: the conformance suite of draftproof on its sampler.

Copy it to test/registered/spec/. The registration is read from the syntax tree, so its values are
constants; the file is run as a script. What fails is a RuntimeError, which is not rerun. Deviations
that are known of SGLang's own sampler are expected; for another one leave out that line.
"""

import sys

import pytest
from sglang.test.ci.ci_register import register_cuda_ci

register_cuda_ci(est_time=60, stage="base-b", runner_config="1-gpu-small")

SUBJECT = "sglang"

if __name__ == "__main__":
    sys.exit(
        pytest.main(
            [
                "--pyargs",
                "oracle.conformance",
                "-k",
                "not ranks",
                f"--draftproof-subject={SUBJECT}",
                "--draftproof-expectations=shipped",
                "--draftproof-engine=cuda",
                "--draftproof-require-gpu",
            ]
        )
    )
