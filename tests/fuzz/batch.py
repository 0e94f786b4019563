"""Very many inputs for each decoder, in one process and without libFuzzer, which is slower than most decoders.

``python -m tests.fuzz.batch INPUTS [DECODER ...]`` runs each decoder in turns of some seconds, until each has had so
many inputs. It prints how many they were, and goes on from there when it is started with the same ``.fuzz``.

Inputs come in rounds, whose number is their seed: so one that ends the process is found again by its round.
"""

from __future__ import annotations

import faulthandler
import sys
import time
import traceback
from pathlib import Path
from random import Random
from typing import Final

import msgspec

from tests.fuzz.decoders import DECODERS, inputs_of
from tests.fuzz.mutator import mutate

__all__ = ["run_round"]

ROUND: Final = 5_000
_TURN_S: Final = 20.0
_HANGS_S: Final = 300.0  # a round that takes longer
_REACHED: Final = Path(".fuzz/reached.json")


def run_round(name: str, number: object, size: int) -> None:
    """Feed a decoder with changed inputs; an error that it must not raise has its input in a note."""
    decoder, random, inputs = DECODERS[name], Random(f"{name} {number}"), inputs_of(name)
    run, raises, shape, chance, count = decoder.run, decoder.raises, decoder.shape, random.random, len(inputs)
    data, together = b"", range(decoder.together)
    try:
        for _ in range(size // decoder.together):
            data = b"\n".join([mutate(inputs[int(chance() * count)], inputs, random, shape) for _ in together])
            try:  # noqa: SIM105 - which takes as long as some decoders
                run(data)
            except raises:
                pass
    except Exception as error:
        error.add_note(f"input of {name}: {data.hex()}")
        raise


def main(inputs: int, names: list[str]) -> int:
    """Run until each decoder has had so many inputs; return how many decoders have failed."""
    reached: dict[str, int] = msgspec.json.decode(_REACHED.read_bytes()) if _REACHED.exists() else {}
    failed = set[str]()
    while left := [name for name in names if name not in failed and reached.get(name, 0) < inputs]:
        for name in left:
            began, before = time.monotonic(), reached.get(name, 0)
            try:
                while reached.get(name, 0) < inputs and time.monotonic() - began < _TURN_S:
                    faulthandler.dump_traceback_later(_HANGS_S, exit=True)
                    run_round(name, reached.get(name, 0), ROUND)
                    reached[name] = reached.get(name, 0) + ROUND
            except Exception:  # noqa: BLE001 - the others go on
                failed.add(name)
                print(f"{name}: FAILED\n{traceback.format_exc()}", flush=True)  # noqa: T201
            faulthandler.cancel_dump_traceback_later()
            speed = (reached.get(name, 0) - before) / (time.monotonic() - began)
            print(f"{name}: {reached.get(name, 0)} inputs, {speed:.0f}/s", flush=True)  # noqa: T201
            _REACHED.parent.mkdir(exist_ok=True)
            _REACHED.write_bytes(msgspec.json.encode(reached))
    return len(failed)


if __name__ == "__main__":
    faulthandler.enable()
    sys.exit(main(int(sys.argv[1]), sys.argv[2:] or list(DECODERS)))
