"""FlashInfer: which architectures it builds and takes its kernels for, as its own source lists them."""

from patcher.gate import Engine

ENGINE = Engine(
    name="flashinfer",
    title="flashinfer-python",
    package="flashinfer",
    distributions=("flashinfer-python",),
    related=("flashinfer-cubin", "flashinfer-jit-cache", "torch"),
    verified=">=0.3.0,<0.7.5",
    newest="0.7.4",
    version_files=("_build_meta.py", "version.py"),
    jit_cache="{FLASHINFER_WORKSPACE_BASE:~}/.cache/flashinfer/{version}/*/cached_ops/{module}",
)
