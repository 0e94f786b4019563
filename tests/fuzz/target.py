"""One decoder under libFuzzer, which looks for inputs that reach code no other input has reached.

``python -m tests.fuzz.target DECODER [OPTION OF LIBFUZZER ...] [FOLDER OF INPUTS ...]``
"""

from __future__ import annotations

import sys
from contextlib import suppress
from random import Random

import atheris

with atheris.instrument_imports(include=["penstock"], enable_loader_override=False):
    from tests.fuzz.decoders import DECODERS
from tests.fuzz.mutator import mutate


def main() -> None:
    """Run until an input is found that the decoder does not refuse as it should, or as many as libFuzzer is told."""
    program, name, *options = sys.argv
    decoder = DECODERS[name]
    seeds = decoder.seeds()

    def run(data: bytes) -> None:
        with suppress(*decoder.raises):
            decoder.run(data)

    def changed(data: bytes, size_max: int, seed: int) -> bytes:
        random = Random(seed)
        if random.random() < 0.5:
            return bytes(atheris.Mutate(data, size_max))
        return mutate(data or random.choice(seeds), seeds, random, decoder.shape)[:size_max]

    atheris.Setup([program, *options], run, custom_mutator=changed)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
