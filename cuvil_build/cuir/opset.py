"""Which ONNX a CU-IR graph is written in."""

from __future__ import annotations

OPSET = 26
"""The default domain's opset. Raised by a decision record, once onnxruntime runs the whole test set at it."""

IR_VERSION = 13
"""The ONNX file format that belongs to `OPSET`; metadata on nodes needs 10 or newer."""

FUSED_DOMAIN = "ai.cuvil.fused"
"""Calls of functions in this domain are fused regions."""

KNOWN_DOMAINS = ("", "ai.onnx.ml", "ai.onnx.preview", "com.microsoft")


def is_known_domain(domain: str) -> bool:
    return domain in KNOWN_DOMAINS or domain.startswith("ai.cuvil")


def default_opset(imports: dict[str, int]) -> int:
    """The opset of the default domain, whichever way the file spells it; 0 when it has none."""
    return imports.get("", imports.get("ai.onnx", 0))
