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


# Halves the tiles of extend attention until ``of_attention`` of them fits SM12x; {query} is the query tensor.
HALVED_UNTIL_IT_FITS = """\
while BLOCK_M > 16 and {query}.element_size() * (
    BLOCK_M * (BLOCK_DMODEL + BLOCK_DPE + BLOCK_N) + BLOCK_N * max(BLOCK_DMODEL, BLOCK_DV)
) > 101376:
    BLOCK_M, BLOCK_N = BLOCK_M // 2, max(BLOCK_N // 2, 16)
"""
