"""The child process that converts: what it may not do, and that it costs one file at most."""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import sys
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from kb.errors import ConversionError
from kb.formats.convert import process as process_module
from kb.formats.convert.formats import FORMATS, Format
from kb.formats.convert.process import Converter

PAGE = next(kind for kind in FORMATS if kind.name == "HTML")


@pytest.fixture
def converter() -> Iterator[Converter]:
    with Converter() as one:
        yield one


@pytest.fixture
def odd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Format:
    """A converter that runs its file as a program: the worst that can be on both sides."""
    package = importlib.import_module("kb.formats.convert")
    (tmp_path / "odd.py").write_text(
        "from kb.formats.convert.result import Converted, ConverterError, Origin\n"
        "def convert(data, name):\n"
        "    scope = {'Converted': Converted}\n"
        "    exec(data, scope)\n"
        "    return Converted(scope.get('text', ''))\n"
    )
    # The child looks for its modules in the package; here it finds one more.
    bootstrap = tmp_path / "sitecustomize.py"
    bootstrap.write_text(
        f"import kb.formats.convert as package\npackage.__path__.append({str(tmp_path)!r})\n"
    )
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    assert package
    return Format("odd", "odd", (".odd",))


def run(converter: Converter, odd: Format, program: str) -> str:
    return converter.convert(odd, "x.odd", program.encode()).text


def test_one_child_converts_many_files(converter: Converter, odd: Format) -> None:
    pids = {run(converter, odd, "import os; text = str(os.getpid())") for _ in range(5)}
    assert len(pids) == 1
    assert pids != {str(os.getpid())}


def test_a_file_that_takes_forever_is_given_up_and_the_next_one_is_read(
    converter: Converter, odd: Format
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(process_module, "CLOCK_SECONDS", 1)
        with pytest.raises(ConversionError, match="given up"):
            run(converter, odd, "import threading; threading.Event().wait()")
    assert run(converter, odd, "text = 'next'") == "next"


@pytest.mark.skipif(sys.platform == "win32", reason="limits of the system")
def test_processor_time_is_limited_for_each_file(converter: Converter, odd: Format) -> None:
    # The limit is lowered by what is converted: 60 s would be a long test.
    lower = (
        "import resource\n"
        "_, hard = resource.getrlimit(resource.RLIMIT_CPU)\n"
        "used = int(sum(resource.getrusage(resource.RUSAGE_SELF)[:2]))\n"
        "resource.setrlimit(resource.RLIMIT_CPU, (used + 1, hard))\n"
        "while True: pass\n"
    )
    with pytest.raises(ConversionError, match="60 s of processor time"):
        run(converter, odd, lower)
    limit = "import resource; text = str(resource.getrlimit(resource.RLIMIT_CPU)[0])"
    assert 60 <= int(run(converter, odd, limit)) <= 70


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not limit address space")
def test_memory_is_limited(converter: Converter, odd: Format) -> None:
    with pytest.raises(ConversionError, match="more than 2 GB of memory"):
        run(converter, odd, "text = 'x' * (3 << 30)")
    assert run(converter, odd, "text = 'next'") == "next"


def test_a_converter_that_dies_costs_its_file_alone(converter: Converter, odd: Format) -> None:
    with pytest.raises(ConversionError, match="exit status 7"):
        run(converter, odd, "import os; os._exit(7)")
    with pytest.raises(ConversionError, match="ZeroDivisionError"):
        run(converter, odd, "1 / 0")
    assert run(converter, odd, "text = 'next'") == "next"


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
@pytest.mark.parametrize(
    ("signal", "told"),
    [
        ("SIGKILL", r"ended from outside \(SIGKILL\)"),
        ("SIGTERM", r"ended from outside \(SIGTERM\)"),
        ("SIGINT", r"ended from outside \(SIGINT\)"),
        ("SIGABRT", "more than 2 GB of memory"),
        ("SIGSEGV", r"crash \(SIGSEGV\)"),
    ],
)
def test_what_ended_a_converter_is_told(
    converter: Converter, odd: Format, signal: str, told: str
) -> None:
    with pytest.raises(ConversionError, match=told):
        run(converter, odd, f"import os, signal; os.kill(os.getpid(), signal.{signal})")
    assert run(converter, odd, "text = 'next'") == "next"


ODD_REPLY = """
import os, struct
for fd in range(3, 20):
    try:
        os.write(fd, struct.pack("!Q", {length}) + {message!r})
    except OSError:
        pass
{then}
"""


@pytest.mark.parametrize(
    "message",
    [
        b"{",
        b"[]",
        b'"error"',
        b'{"text": 1}',
        b'{"text": "", "title": "", "origins": [1], "metadata": {}, "notices": [], "left_out": {}}',
        b'{"text": "", "title": "", "origins": [], "metadata": {}, "notices": [], "left_out": 1}',
    ],
)
def test_a_reply_of_another_form_costs_its_file_alone(
    converter: Converter, odd: Format, message: bytes
) -> None:
    program = ODD_REPLY.format(length=len(message), message=message, then="")
    with pytest.raises(ConversionError, match="send nonsense"):
        run(converter, odd, program)
    assert run(converter, odd, "text = 'next'") == "next"


def test_a_child_that_answers_nothing_and_stays_is_given_up(
    converter: Converter, odd: Format
) -> None:
    wait = "import threading; threading.Event().wait()"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(process_module, "CLOCK_SECONDS", 1)
        with pytest.raises(ConversionError, match="more than 1 s to convert and was given up"):
            run(converter, odd, ODD_REPLY.format(length=0, message=b"", then=wait))
    assert run(converter, odd, "text = 'next'") == "next"


def test_what_a_library_prints_does_not_disturb(converter: Converter, odd: Format) -> None:
    program = "import os; print('noise'); os.write(1, b'more'); text = 'clean'"
    assert run(converter, odd, program) == "clean"


def test_too_much_text_is_refused(converter: Converter, odd: Format) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(process_module, "MAXIMUM_TEXT_BYTES", 1_000)
        with pytest.raises(ConversionError, match="MB of text"):
            run(converter, odd, "text = 'x' * 2000")
    assert run(converter, odd, "text = 'next'") == "next"


@pytest.mark.parametrize(
    "program",
    [
        "open('{outside}').read()",
        "open('{outside}', 'w')",
        "import os; os.open('{new}', os.O_WRONLY | os.O_CREAT)",
        "import socket; socket.create_connection(('127.0.0.1', 9))",
        "import subprocess; subprocess.run(['true'])",
        "import os; os.system('true')",
        "import os; os.fork()",
        "import os; os.remove('{outside}')",
        "import os; os.mkdir('{new}')",
        "import urllib.request; urllib.request.urlopen('file://{outside}')",
        "import sqlite3; sqlite3.connect('{new}')",
    ],
)
def test_files_network_and_programs_are_out_of_reach(
    converter: Converter, odd: Format, tmp_path: Path, program: str
) -> None:
    outside = tmp_path.parent / f"{tmp_path.name}-secret"
    outside.write_text("secret")
    new = tmp_path.parent / f"{tmp_path.name}-new"
    with pytest.raises(ConversionError, match="a converter may not"):
        run(converter, odd, program.format(outside=outside, new=new))
    assert outside.read_text() == "secret"
    assert not new.exists()


def test_without_its_libraries_a_format_names_the_command_that_adds_them(
    converter: Converter,
) -> None:
    missing = Format("Papyrus", "papyrus", (".papyrus",), ("no_such_library",))
    with pytest.raises(ConversionError, match=r"pip install 'kbfile\[formats\]'"):
        converter.convert(missing, "a.papyrus", b"")


def bomb(name: str, size: int) -> bytes:
    """A zip archive with a member that says and is of this size, all zeros."""
    packed = io.BytesIO()
    with (
        zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open(name, "w") as f,
    ):
        block = bytes(1 << 20)
        for _ in range(size >> 20):
            f.write(block)
    return packed.getvalue()


def test_zip_bombs_are_refused_before_they_are_unpacked(converter: Converter) -> None:
    word = next(kind for kind in FORMATS if kind.name == "Word")
    with pytest.raises(ConversionError, match="unpacks to"):
        converter.convert(word, "a.docx", bomb("word/document.xml", 600 << 20))
    manual = FORMATS[-1]
    squeezer = zlib.compressobj(wbits=31)
    block = bytes(1 << 20)
    packed = b"".join(squeezer.compress(block) for _ in range(64)) + squeezer.flush()
    with pytest.raises(ConversionError, match="unpacks to more than"):
        converter.convert(manual, "a.1.gz", packed)


def test_entities_neither_grow_nor_read_files(converter: Converter, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("treasure")
    laughs = "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10}">' for n in range(1, 12))
    for declared, used in (
        (f'<!ENTITY x SYSTEM "file://{secret}">', "&x;"),
        (f'<!ENTITY l0 "ha">{laughs}', "&l11;"),
    ):
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w") as archive:
            archive.writestr(
                "word/document.xml",
                f'<?xml version="1.0"?><!DOCTYPE d [{declared}]>'
                '<w:document xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main">'
                f"<w:body><w:p><w:r><w:t>{used}</w:t></w:r></w:p></w:body></w:document>",
            )
        try:
            text = converter.convert(
                next(kind for kind in FORMATS if kind.name == "Word"), "a.docx", packed.getvalue()
            ).text
        except ConversionError as error:
            text = str(error)
        assert "treasure" not in text
        assert len(text) < 1_000


def test_deep_nesting_ends_with_an_error_or_a_document(converter: Converter) -> None:
    page = b"<body>" + b"<div>" * 200_000 + b"x" + b"</div>" * 200_000
    with contextlib.suppress(ConversionError):
        assert len(converter.convert(PAGE, "a.html", page).text) < 10
    assert converter.convert(PAGE, "b.html", b"<body><h1>Next</h1></body>").text == "# Next\n"
