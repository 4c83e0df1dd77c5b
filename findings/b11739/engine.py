"""Small files for llama.cpp b11739, and their results."""

import gguf
import numpy as np
from llama_cpp_py_sync import _cffi_bindings

ffi, lib = _cffi_bindings.get_ffi(), _cffi_bindings.get_lib()
ERROR = 4
errors = []


@ffi.callback("void(int, char *, void *)")
def log(level, text, _):
    if level == ERROR:
        errors.append(ffi.string(text).decode().strip())


lib.llama_log_set(ffi.cast("ggml_log_callback", log), ffi.NULL)


def write(path, arch, keys, tensors):
    """Write a file. Keys without a dot in front are the architecture's."""
    writer = gguf.GGUFWriter(path, arch)
    kinds = {bool: writer.add_bool, int: writer.add_uint32, float: writer.add_float32}
    kinds |= {str: writer.add_string, list: writer.add_array}
    for key, value in keys.items():
        kinds[type(value)](key[1:] if key[0] == "." else f"{arch}.{key}", value)
    for name, values in tensors.items():
        writer.add_tensor(name, np.asarray(values, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def load(path, **values):
    """-> a model, or None after an error"""
    params = lib.llama_model_default_params()
    params.n_gpu_layers = 0
    for name, value in values.items():
        setattr(params, name, value)
    errors.clear()
    return lib.llama_model_load_from_file(path.encode(), params) or None


def logits(model, tokens):
    """-> logits of the last token"""
    params = lib.llama_context_default_params()
    params.n_ctx = 256
    context = lib.llama_init_from_model(model, params)
    ids = ffi.new("int32_t[]", tokens)
    assert lib.llama_decode(context, lib.llama_batch_get_one(ids, len(tokens))) == 0
    size = lib.llama_vocab_n_tokens(lib.llama_model_get_vocab(model))
    found = ffi.buffer(lib.llama_get_logits_ith(context, -1), size * 4)
    return np.frombuffer(found, np.float32).copy()


def tokenize(model, text):
    raw, ids = text.encode(), ffi.new("int32_t[99]")
    vocab = lib.llama_model_get_vocab(model)
    n = lib.llama_tokenize(vocab, raw, len(raw), ids, 99, False, False)
    assert n >= 0
    return list(ids[0:n])
