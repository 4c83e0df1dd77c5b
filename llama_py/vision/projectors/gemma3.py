"""Gemma3's vision encoder: SigLIP with pooled patches (models/siglip.cpp)."""

from __future__ import annotations

from ggml_py.ops import cont, mul, mul_mat, pool_2d, reshape, rms_norm, transpose
from ggml_py.tensor import Tensor
from llama_py.gguf.keys import uint
from llama_py.vision.graph import ImageGraph
from llama_py.vision.hparams import MAX_PATCH, VisionHParams
from llama_py.vision.projectors._projector import Projector
from llama_py.vision.vit import ViT
from llama_py.weights import Weights


class Gemma3VisionHParams(VisionHParams):
    n_merge: int = uint("vision.projector.scale_factor", 4, least=1, most=MAX_PATCH)


class Gemma3Projector(Projector):
    name = "gemma3"
    HParams = Gemma3VisionHParams
    resize = "bilinear"
    begin, end = "<start_of_image>", "<end_of_image>"

    def declare(self, w: Weights) -> None:
        hp = self.hp
        size, n = hp.patch_size, hp.n_embd
        self.kernel = w.tensor("v.patch_embd.weight", size, size, 3, n)
        self.bias = w.optional_tensor("v.patch_embd.bias", n)
        self.learned = w.tensor("v.position_embd.weight", n, hp.n_side**2)
        self.vit = ViT(w, hp, "layer", swaps=True)
        self.norm = w.tensor("mm.soft_emb_norm.weight", n)
        info = w.info("mm.input_projection.weight")
        self.n_embd_out = hp.n_embd_out if info is None else info.ne[0]
        self.out = w.tensor("mm.input_projection.weight", self.n_embd_out, n)

    def build(self, g: ImageGraph) -> Tensor:
        n_embd, size = g.hp.n_embd, g.hp.n_merge
        cur = self.vit(g, g.patches(self.kernel, self.bias), self.learned)
        cur = cont(transpose(cur), g.nx, g.nx, n_embd, 1)
        cur = pool_2d(cur, "avg", size, size, size, size, 0, 0)
        cur = reshape(cur, cur.ne[0] ** 2, n_embd, 1)
        cur = mul(rms_norm(cont(transpose(cur)), g.hp.eps), self.norm)
        return mul_mat(cont(transpose(self.out)), cur)

    def sees_all(self, n_embd: int) -> bool:
        return True
