"""A small share of what `scripts/stress/protocol` sends; the recorded run is a hundred thousand."""

from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path

from support import ROOT


def test_whatever_a_client_sends_is_answered_and_nothing_ends_the_server(tmp_path: Path) -> None:
    loader = SourceFileLoader("stress_protocol", str(ROOT / "scripts" / "stress" / "protocol"))
    spec = spec_from_loader("stress_protocol", loader)
    assert spec is not None
    script = module_from_spec(spec)
    loader.exec_module(script)
    stress = script.stressed(300, 7, tmp_path)
    # How long an answer takes is measured where the machine is quiet.
    failures = [one for one in stress.failures if not one.startswith("hangs")]
    assert failures == []
    assert stress.counts["", "tracebacks"] == 0
    assert sum(number for (_, what), number in stress.counts.items() if what == "inputs") == 300
