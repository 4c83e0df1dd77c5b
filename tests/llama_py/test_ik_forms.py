"""Types of ik_llama.cpp: values in each form of its files, copies, and models of them."""

from __future__ import annotations

import hashlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from ggml_py.types import BY_NAME
from ggml_ref.quants import dequantizer
from llama_py.gguf.file import GGUFFile, TensorInfo
from llama_py.gguf.forms import FORMS
from llama_py.gguf.write import content, n_bytes
from llama_py.model import Model
from tests.llama_py.test_weight_types import WIDE, decoded, matrices
from tests.support.gguf_writer import Tensor, gguf, write
from tests.support.ik_forms import ADDED, IDS, N, name_of, plain, stored, tensor
from tests.support.live_models import Arrays, info_of, made

# SHA-256 (first 12 digits) of the values that ik_llama.cpp's to_float gives for `stored`. What it
# leaves out is the scales of iq1_bn and iq2_bn; of bf16_r16 it has no function, and that of
# mxfp4_r8 reads past the rows: there it is that of the plain type.
VALUES = {
    133: "2a492f02566f",  # q6_0
    137: "cd05b95004e9",  # iq2_k
    138: "00905d3d709d",  # iq3_k
    139: "09dcd1e112b7",  # iq4_k
    140: "fd18733e28f8",  # iq5_k
    141: "81e7fec9b9f3",  # iq6_k
    134: "6d1e358c4838",  # iq1_bn
    135: "da4bb3a94b6e",  # iq2_bn
    144: "b4ca42f7e654",  # iq4_ks
    145: "e49614d8efd4",  # iq2_ks
    146: "d56fe8054526",  # iq4_kss
    151: "ad74095b26e4",  # q8_kv
    152: "aa91151486d9",  # iq5_ks
    153: "6f9dcea430ed",  # iq2_kt
    154: "570d7ed69e3f",  # iq3_kt
    155: "e7019a99b6b8",  # iq4_kt
    156: "fd3da45d8303",  # iq3_ks
    157: "6cc6161b3de1",  # iq2_kl
    158: "9ef63a4aa639",  # iq1_kt
    36: "b14104da35ad",  # i2_s
    202: "6b1e9fbe29e2",  # q4_0_r8
    206: "3ecb7829a6a1",  # q5_0_r4
    208: "5727933c0ba9",  # q8_0_r8
    210: "bf3b722e169f",  # q2_K_r4
    211: "a8e24eec980c",  # q3_K_r4
    212: "08207a72f1be",  # q4_K_r4
    213: "6f24f56205b3",  # q5_K_r4
    214: "5404b792f241",  # q6_K_r4
    216: "f4f25a214a4b",  # iq2_xxs_r4
    217: "547289496b00",  # iq2_xs_r4
    218: "16404cd08362",  # iq3_xxs_r4
    219: "b90b7b2461c7",  # iq1_s_r4
    220: "e2e7d34be1d4",  # iq4_nl_r4
    221: "9ae2881e7a13",  # iq3_s_r4
    222: "cdd51d25b171",  # iq2_s_r4
    223: "6f22eb7dffba",  # iq4_xs_r8
    229: "28fb46f8fc1b",  # iq1_m_r4
    230: "ce0d2c64af39",  # bf16_r16
    233: "263276633655",  # q6_0_r4
    335: "72317649d259",  # iq2_bn_r4
    337: "e69d92f74db5",  # iq2_k_r4
    338: "5694dd0c4363",  # iq3_k_r4
    339: "ff52d82717c8",  # iq4_k_r4
    340: "59fdc4577915",  # iq5_k_r4
    344: "82a5d3e9b990",  # iq4_ks_r4
    352: "3f1ba3f8b39f",  # iq5_ks_r4
    353: "dfd4157e6825",  # mxfp4_r8
    397: "30619ad46179",  # q8_k_r16
    398: "1a9645267863",  # q8_kv_r8
    399: "ee16404032d4",  # q8_k_r8
}


def file_of(folder: Path, ids: list[int]) -> Path:
    """A file with a tensor of each type."""
    tensors = []
    for id in ids:
        raw = stored(id)
        n_rows = FORMS[id].rows if id in FORMS else 1
        tensors.append(Tensor(f"t{id}", (N, n_rows), id, raw.tobytes()))
    return write(folder, gguf([], tensors))


def test_all_types_are_here() -> None:
    assert list(VALUES) == IDS
    assert len(ADDED) == 20


@pytest.mark.parametrize("id", IDS, ids=name_of)
def test_values_are_ik_llama_cpps(id: int, tmp_path: Path) -> None:
    with GGUFFile.open(file_of(tmp_path, [id])) as file:
        found = file.tensors[f"t{id}"]
        assert found.type is plain(id)
        assert found.nbytes == found.data.size == found.type.row_size(N) * found.ne[1]
        blocks = found.data.reshape(-1, found.type.type_size)
        if found.type.name == "bf16":
            x = (blocks.view("<u2").astype(np.uint32) << 16).view(np.float32)
        else:
            decode = dequantizer(found.type)
            assert decode is not None
            x = decode(blocks)
    assert np.isfinite(x).all()
    raw = (x + np.float32(0)).astype("<f4").tobytes()  # one zero
    assert hashlib.sha256(raw).hexdigest()[:12] == VALUES[id]


def test_long_tensors_are_unwound_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    form, raw = FORMS[339], np.tile(stored(339), 5)
    whole = form.unwind(raw, N)
    monkeypatch.setattr("llama_py.gguf.forms.PIECE", 2 * 4 * form.row_size(N))
    np.testing.assert_array_equal(form.unwind(raw, N), whole)


def test_data_is_unwound_once(tmp_path: Path) -> None:
    with GGUFFile.open(file_of(tmp_path, [339])) as file:
        info = file.tensors["t339"]
        data = info.data
        assert info.data is data and not data.flags.writeable
        assert info.rename("other").name == "other"
        np.testing.assert_array_equal(info.rename("other").data, data)
        assert info.path is None  # devices cannot read these bytes from the file


def test_headers_of_such_files(tmp_path: Path) -> None:
    """A file without its data has the types and sizes of memory."""
    with GGUFFile.open(file_of(tmp_path, [339])) as file:
        want = file.tensors["t339"]
        file.forget_data()
        found = file.tensors["t339"]
        assert (found.type, found.ne, found.nbytes) == (want.type, want.ne, want.nbytes)
        assert not found.data.any()


def test_copies_have_the_bytes_of_the_file(tmp_path: Path) -> None:
    path = file_of(tmp_path, IDS)
    with GGUFFile.open(path) as file:
        again = b"".join(bytes(part) for part in content({}, file.tensors.values()))
        assert n_bytes({}, file.tensors.values()) == len(again)
    with GGUFFile.open(write(tmp_path, again, "again.gguf")) as copy:
        for id in IDS:
            info = copy.tensors[f"t{id}"].as_stored()
            assert (info.type.id, info.data.tobytes()) == (id, stored(id).tobytes())


def model_with(metadata: dict[str, Any], arrays: Arrays, changed: dict[str, TensorInfo]) -> Model:
    """A model of these weights, and of some that a file stores otherwise."""
    infos = {name: info_of(name, a) for name, a in arrays.items()} | changed
    file: Any = SimpleNamespace(
        path="live.gguf",
        metadata=dict(metadata),
        architecture=metadata["general.architecture"],
        tensors=infos,
    )
    return Model(file, "cpu")


@pytest.mark.parametrize("id", [202, 145, 36, 339, 399], ids=name_of)
def test_models_run(id: int) -> None:
    """In experts, attention and embeddings; like the plain type with the same values."""
    metadata, arrays = made("gpt-oss-moe", **WIDE)
    form, changed, same = FORMS[id], {}, {}
    for name in matrices(arrays, BY_NAME["q4_K"]):
        ne = (*arrays[name].shape[::-1], 1, 1)[:4]
        if ne[1] % form.rows:
            continue
        groups = int(np.prod(ne[1:])) // form.rows
        info = tensor(name, form, ne, stored(id, ne[0], groups))
        changed[name] = info
        same[name] = TensorInfo(name, info.type, info.ne, 0, info.nbytes, info.data.copy())
    assert {"token_embd.weight", "blk.0.attn_q.weight", "blk.0.ffn_up_exps.weight"} <= set(changed)
    found = decoded(model_with(metadata, arrays, changed))
    np.testing.assert_array_equal(found, decoded(model_with(metadata, arrays, same)))
