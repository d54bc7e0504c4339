"""Writes data/one.npz and data/five.npz: short files of several kinds as the model's byte tokens."""

from pathlib import Path

import numpy as np

HALF, PADDING = 1024, 256
FILES = {
    "python": b"import sys\n\n\ndef main() -> int:\n    print('hello', *sys.argv[1:])\n    return 0\n" * 8,
    "json": b'{"name": "cuvil", "sizes": [1, 2, 3], "nested": {"yes": true, "no": null}}\n' * 4,
    "html": b"<!DOCTYPE html>\n<html><head><title>t</title></head><body><p>text</p></body></html>\n",
    "csv": b"date,city,temperature\n2024-01-01,Oslo,-4.5\n2024-01-01,Rome,11.0\n" * 20,
    "png": b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x00\x10\x00\x00\x00\x10\x08\x02\x00\x00\x00"
    + bytes(range(256)),
}


def tokens(content: bytes) -> np.ndarray:
    """The first bytes, filled up on the right; the last bytes, filled up on the left."""
    text = content.strip()
    row = np.full(2 * HALF, PADDING, np.int32)
    head, tail = text[:HALF], text[-HALF:]
    row[: len(head)] = list(head)
    row[2 * HALF - len(tail) :] = list(tail)
    return row


def main() -> None:
    folder = Path(__file__).parent / "data"
    folder.mkdir(exist_ok=True)
    rows = np.stack([tokens(content) for content in FILES.values()])
    np.savez_compressed(folder / "one.npz", bytes=rows[:1])
    np.savez_compressed(folder / "five.npz", bytes=rows)


if __name__ == "__main__":
    main()
