"""All checks as tests: pytest --pyargs oracle.conformance --draftproof-subject module:factory."""
