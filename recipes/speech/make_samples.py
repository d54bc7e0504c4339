"""Writes data/16k.npz and data/8k.npz: a vowel-like tone in noise, one chunk for each sample rate."""

from pathlib import Path

import numpy as np


def chunk(batch: int, rate: int, samples: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(rate)
    time = np.arange(samples) / rate
    harmonics = [np.sin(2 * np.pi * 120 * k * time) / k for k in range(1, 9)]
    tone = 0.3 * np.sum(harmonics, axis=0)
    wave = tone + 0.02 * rng.standard_normal((batch, samples))
    return {
        "input": wave.astype(np.float32),
        "state": np.zeros((2, batch, 128), np.float32),
        "sr": np.array(rate, np.int64),
    }


def main() -> None:
    folder = Path(__file__).parent / "data"
    folder.mkdir(exist_ok=True)
    np.savez_compressed(folder / "16k.npz", **chunk(1, 16000, 576))
    np.savez_compressed(folder / "8k.npz", **chunk(3, 8000, 288))


if __name__ == "__main__":
    main()
