#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/stage/reference_figures.inc: loss and gradients of small GPT-2 and Llama models, by PyTorch's autograd.

An implementation of both families that shares nothing with Penstock's: PyTorch's own functions where it has them, rotary
positions by complex numbers, gradients by autograd, all in double. Parameters and tokens come from the formulas of
tests/stage/pipeline.cpp, exact in fp32. Needs python3-torch (Debian's 1.13 will do):

    scripts/reference_figures.py > tests/stage/reference_figures.inc
"""
import math
import sys

import torch
import torch.nn.functional as F

LLAMA = dict(family="llama", layers=2, hidden=16, heads=4, kv_heads=2, head_size=4, ffn=24, vocabulary=23)
GPT2 = dict(family="gpt2", layers=2, hidden=16, heads=4, kv_heads=4, head_size=4, ffn=24, vocabulary=23, positions=9)
SEQUENCES, TOKENS = 2, 8
EPSILON, THETA = 1e-5, 10000.0


def shapes_of(model, tied):
    """Canonical names in canonical order -> (shape, constant part of the initial value)."""
    gpt2 = model["family"] == "gpt2"
    h, f, v = model["hidden"], model["ffn"], model["vocabulary"]
    q, kv = model["heads"] * model["head_size"], model["kv_heads"] * model["head_size"]
    shapes = {"embedding/token/weight": ((v, h), 0.0)}
    if gpt2:
        shapes["embedding/position/weight"] = ((model["positions"], h), 0.0)

    def norm(name):
        shapes[name + "/weight"] = ((h,), 1.0)
        if gpt2:
            shapes[name + "/bias"] = ((h,), 0.0)

    def product(name, outputs, inputs):
        shapes[name + "/weight"] = ((outputs, inputs), 0.0)
        if gpt2:
            shapes[name + "/bias"] = ((outputs,), 0.0)

    for layer in range(model["layers"]):
        at = f"layers/{layer}/"
        norm(at + "attention_norm")
        product(at + "attention/query", q, h)
        product(at + "attention/key", kv, h)
        product(at + "attention/value", kv, h)
        product(at + "attention/output", h, q)
        norm(at + "ffn_norm")
        if not gpt2:
            product(at + "ffn/gate", f, h)
        product(at + "ffn/up", f, h)
        product(at + "ffn/down", h, f)
    norm("final_norm")
    if not tied:
        shapes["head/weight"] = ((v, h), 0.0)
    return shapes


def parameters_of(model, tied):
    parameters = {}
    for number, (name, (shape, constant)) in enumerate(shapes_of(model, tied).items()):
        i = torch.arange(math.prod(shape), dtype=torch.int64)
        residue = (31 * i * i + 7919 * i + 10477 * number + 5) % 2003
        values = constant + residue.to(torch.float64) / 2048 - 0.5
        parameters[name] = values.reshape(shape).requires_grad_()
    return parameters


def rotate(x):
    """x: [B, heads, T, d]; the pair (i, i + d/2) is a complex number, turned by t * theta^(-2 i / d)."""
    half = x.shape[-1] // 2
    pairs = torch.complex(x[..., :half], x[..., half:])
    frequency = THETA ** (-torch.arange(half, dtype=torch.float64) / half)
    angle = torch.arange(x.shape[-2], dtype=torch.float64)[:, None] * frequency[None, :]
    turned = pairs * torch.polar(torch.ones_like(angle), angle)
    return torch.cat([turned.real, turned.imag], dim=-1)


class Model:
    def __init__(self, model, parameters):
        self.model, self.parameters = model, parameters
        self.gpt2 = model["family"] == "gpt2"

    def linear(self, x, name):
        return F.linear(x, self.parameters[name + "/weight"], self.parameters.get(name + "/bias"))

    def norm(self, x, name):
        weight = self.parameters[name + "/weight"]
        if self.gpt2:
            return F.layer_norm(x, x.shape[-1:], weight, self.parameters[name + "/bias"], EPSILON)
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + EPSILON) * weight

    def heads(self, x, count):
        return x.unflatten(-1, (count, self.model["head_size"])).transpose(1, 2)

    def attention(self, x, at):
        q = self.heads(self.linear(x, at + "query"), self.model["heads"])
        k = self.heads(self.linear(x, at + "key"), self.model["kv_heads"])
        v = self.heads(self.linear(x, at + "value"), self.model["kv_heads"])
        if not self.gpt2:
            q, k = rotate(q), rotate(k)
        sharing = self.model["heads"] // self.model["kv_heads"]
        k, v = k.repeat_interleave(sharing, dim=1), v.repeat_interleave(sharing, dim=1)
        scores = q @ k.transpose(-1, -2) / math.sqrt(self.model["head_size"])
        future = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        weights = scores.masked_fill(future, -math.inf).softmax(-1)
        return self.linear((weights @ v).transpose(1, 2).flatten(2), at + "output")

    def feed_forward(self, x, at):
        if self.gpt2:
            return self.linear(F.gelu(self.linear(x, at + "up"), approximate="tanh"), at + "down")
        return self.linear(F.silu(self.linear(x, at + "gate")) * self.linear(x, at + "up"), at + "down")

    def loss(self, tokens, targets):
        """The sum over the targets that count."""
        table = self.parameters["embedding/token/weight"]
        x = F.embedding(tokens, table)
        if self.gpt2:
            x = x + self.parameters["embedding/position/weight"][: tokens.shape[1]]
        for layer in range(self.model["layers"]):
            at = f"layers/{layer}/"
            x = x + self.attention(self.norm(x, at + "attention_norm"), at + "attention/")
            x = x + self.feed_forward(self.norm(x, at + "ffn_norm"), at + "ffn/")
        logits = F.linear(self.norm(x, "final_norm"), self.parameters.get("head/weight", table))
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-1, reduction="sum")


def token_numbers(vocabulary):
    t = torch.arange(SEQUENCES * TOKENS, dtype=torch.int64)
    tokens = (3 * t * t + 5 * t + 1) % vocabulary
    targets = torch.where(t % 5 == 3, torch.tensor(-1), (7 * t + 2) % vocabulary)
    return tokens.reshape(SEQUENCES, TOKENS), targets.reshape(SEQUENCES, TOKENS)


def write_case(name, model, tied):
    parameters = parameters_of(model, tied)
    tokens, targets = token_numbers(model["vocabulary"])
    loss = Model(model, parameters).loss(tokens, targets)
    loss.backward()
    print(f'{{"{name}", {str(tied).lower()}, {loss.item()!r}, {{')
    for parameter, values in parameters.items():
        gradient = values.grad.flatten()
        samples = [gradient[len(gradient) * part // 5].item() for part in range(5)]
        listed = ", ".join(repr(sample) for sample in samples)
        print(f'    {{"{parameter}", {gradient.norm().item()!r}, {{{listed}}}}},')
    print("}},")


def main():
    print("// SPDX-License-Identifier: Apache-2.0")
    print(f"// Written by scripts/reference_figures.py with PyTorch {torch.__version__} in double; do not edit.")
    print("// Family, tied, sum of losses, {parameter, norm of its gradient, its elements size * {0, 1, 2, 3, 4} / 5}.")
    for tied in (False, True):
        write_case("llama", LLAMA, tied)
        write_case("gpt2", GPT2, tied)


if __name__ == "__main__":
    sys.exit(main())
