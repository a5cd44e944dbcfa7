"""Every known mistake is found, and the page that says so is up to date."""

from functools import cache

import pytest
from mutants import TABLE, Mutant, everything, killer, known, table

CHECKS = {name: check for _, checks in everything() for name, check in checks.items()}
MUTANTS = {mutant: checks for group, checks in everything() for mutant in group}
KNOWN = known()


@pytest.mark.parametrize("name", CHECKS)
def test_checks_pass_where_no_mistake_is_made(name: str):
    CHECKS[name]()


@cache
def found_by(mutant: Mutant) -> str | None:
    """Return the check that the table names, if it still fails, or else the first that fails."""
    checks = MUTANTS[mutant]
    named = {name: checks[name] for name in (KNOWN.get(mutant.mistake),) if name in checks}
    return killer(mutant, {**named, **checks})


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.mistake)
def test_mutants_are_killed(mutant: Mutant):
    assert found_by(mutant)


def test_the_table_is_up_to_date():
    killers = {mutant.mistake: found_by(mutant) for mutant in MUTANTS}
    assert len(killers) == len(MUTANTS) >= 20
    assert TABLE.read_text() == table(killers), "write it again: python tests/mutants.py"
