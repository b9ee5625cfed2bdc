"""The invariant under everything at once, for many seeds."""

import os

import pytest

from tests.scheduler.simulation import Simulation
from tests.scheduler.virtual_time import run

# Calls of the API server in all runs together; SIMULATED_CALLS=1000000 for a long one.
CALLS = int(os.environ.get("SIMULATED_CALLS", "8000"))
PODS = 120


@pytest.mark.parametrize("before_1_23", [False, True])
def test_no_cu_is_held_twice_and_nothing_is_left_over(*, before_1_23: bool) -> None:
    calls = seed = bound = 0
    while calls < CALLS:
        simulation = Simulation(seed, PODS, before_1_23=before_1_23)
        try:
            run(simulation.run())
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
        assert simulation.leftovers() == [], f"seed {seed}"
        calls += simulation.api.calls
        bound += len(simulation.bound)
        seed += 1
    assert bound > seed * PODS / 5, "many pods must have been bound for the rest to mean anything"


@pytest.mark.parametrize("seed", [1, 2])
def test_a_run_can_be_repeated(seed: int) -> None:
    runs = [Simulation(seed, 10) for _ in range(2)]
    for simulation in runs:
        run(simulation.run())
    assert runs[0].api.log == runs[1].api.log
