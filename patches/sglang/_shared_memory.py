"""How much shared memory the triton kernels take whose sizes are fixed, in bytes.

Each is what the compiler asks for (triton 3.5, built for sm_120) or more.
"""

from collections.abc import Mapping


def of_attention(tiles: Mapping[str, int], itemsize: int) -> int:
    """Extend attention: the query tile, the larger of a key and a value tile, and the scores."""
    m, n, dmodel, dpe, dv = (tiles[f"BLOCK_{name}"] for name in ("M", "N", "DMODEL", "DPE", "DV"))
    return itemsize * (m * (dmodel + dpe) + n * max(dmodel, dv) + m * n)


def of_pipelined_matmul(config: Mapping[str, int], itemsize: int) -> int:
    """A matmul in stages: a tile of each operand for every stage but one (triton takes three if none is named)."""
    m, n, k = (config[f"BLOCK_SIZE_{name}"] for name in "MNK")
    return (config.get("num_stages", 3) - 1) * k * (m + n) * itemsize
