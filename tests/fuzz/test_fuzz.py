"""A sample of what ``make fuzz`` does: the inputs of the corpus, and some thousand others, the same in every run."""

from __future__ import annotations

import re
import resource
from contextlib import suppress
from pathlib import Path
from typing import Final

import pytest

from tests.fuzz.batch import run_round
from tests.fuzz.decoders import CORPUS, DECODERS, inputs_of

MEMORY_MAX: Final = 256 << 20
CUTS: Final = 200
DEPTH: Final = 12_000  # more than the limit of any Python
LEVELS: Final = (b"\x91", b"\x81", b"\x81\xa1a", b"[", b'{"a":')  # lists and maps of one, in msgpack and JSON


@pytest.mark.parametrize("name", DECODERS)
def test_a_decoder_raises_nothing_but_its_own_error(name: str) -> None:
    """Bytes from outside may be anything; an error that no caller expects ends a thread, a store or a process."""
    before = _memory_peak()
    for data in inputs_of(name):
        with suppress(*DECODERS[name].raises):
            DECODERS[name].run(data)
    run_round(name, "sample", DECODERS[name].sample)
    assert _memory_peak() - before < MEMORY_MAX


@pytest.mark.parametrize("name", DECODERS)
def test_deep_nesting_is_refused(name: str) -> None:
    """A decoder that calls itself for each level meets Python's limit, whose error no caller expects."""
    decoder = DECODERS[name]
    seed = min(decoder.seeds(), key=len)
    for cut in range(0, len(seed), 1 + len(seed) // CUTS):
        for level in LEVELS:
            with suppress(*decoder.raises):
                decoder.run(seed[:cut] + level * DEPTH)


@pytest.mark.parametrize("name", DECODERS)
def test_a_good_input_is_decoded(name: str) -> None:
    """Otherwise all that is tested is how the first byte is refused."""
    decoder = DECODERS[name]
    results = []
    for data in decoder.seeds():
        try:
            decoder.run(data)
        except decoder.raises as error:
            results.append(error)
    assert len(results) < len(decoder.seeds()), results


def test_the_corpus_is_small_and_belongs_to_decoders() -> None:
    """It is for what was found once, not a place for data."""
    assert {path.stem for path in CORPUS.iterdir()} <= DECODERS.keys()
    assert sum(path.stat().st_size for path in CORPUS.iterdir()) < 200_000


def test_the_documentation_lists_the_decoders() -> None:
    """What is not in the table was forgotten, by the documentation or by the fuzzer."""
    text = Path("docs/testing.md").read_text()
    rows = re.findall(r"^\| `([a-z-]+)` \| .+ \| [0-9,]+ \|$", text, re.MULTILINE)
    assert rows == list(DECODERS)


def _memory_peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
