"""The compiled libraries that SGLang's gates lead to, and the packages that have to fit each other."""

from patcher.kernels import KernelLibrary

LIBRARIES = (
    KernelLibrary("torch", "torch", "lib/libtorch_cuda*.so", "every kernel of PyTorch itself", ("*",)),
    KernelLibrary(
        "sgl-kernel common_ops",
        "sgl_kernel",
        "**/common_ops*.so",
        "SGLang's own kernels: quantised GEMM, MoE, norms, router",
        ("gemm-fused-a", "gemm-dsv3-router", "gemm-fp8-*", "moe-fp8-cutlass", "moe-mxfp8", "attention-cutlass-mla"),
    ),
    KernelLibrary(
        "sgl-kernel flash_ops",
        "sgl_kernel",
        "**/flash_ops*.so",
        "FlashAttention 3",
        ("attention-fa3", "attention-gpt-oss-*"),
    ),
    KernelLibrary(
        "sgl-kernel flashmla_ops", "sgl_kernel", "**/flashmla_ops*.so", "FlashMLA, dense and sparse", ("dsa-*",)
    ),
    KernelLibrary("sgl-kernel infllm_ops", "sgl_kernel", "**/infllm_ops*.so", "InfLLM sparse attention"),
    KernelLibrary("sgl-kernel spatial_ops", "sgl_kernel", "**/spatial_ops*.so", "SM partitioning"),
    KernelLibrary(
        "flashinfer-cubin",
        "flashinfer_cubin",
        "**/*.cubin",
        "trtllm-gen attention, GEMM and MoE, compiled ahead by NVIDIA",
        ("attention-trtllm-*", "qsa-trtllm-*", "dsa-trtllm-*", "moe-runner-trtllm-*", "hybrid-gdn-attention"),
    ),
    KernelLibrary(
        "flashinfer-jit-cache",
        "flashinfer_jit_cache",
        "**/*.so",
        "FlashInfer's own kernels, compiled ahead",
        ("allreduce-fusion*", "moe-autotune-*", "moe-nvfp4-*", "gemm-fp4-*", "kv-cache-nvfp4*", "attention-fmha-*"),
    ),
    KernelLibrary(
        "DeepGEMM", "deep_gemm", "**/*.so", "DeepGEMM (compiles its kernels when they are needed)", ("deepgemm-*",)
    ),
    KernelLibrary("FlashMLA", "flash_mla", "**/*.so", "FlashMLA, dense and sparse", ("dsa-*",)),
    KernelLibrary("DeepEP", "deep_ep", "**/*.so", "expert-parallel all-to-all", ("deepep-*",)),
)

# These must have the same version (a "+cu129" behind it aside).
MATCHING = (("flashinfer-python", "flashinfer-cubin", "flashinfer-jit-cache"),)

# Kernel packages that do not import without a GPU: a simulation puts stand-ins in their place.
STAND_INS = (
    "sgl_kernel",
    "flashinfer",
    "flashinfer_cubin",
    "flashinfer_jit_cache",
    "deep_gemm",
    "deep_ep",
    "flash_mla",
    "flash_attn",
    "flash_attn_interface",
    "torchao",
    "torchvision",
    "vllm",
    "xformers",
    "cutlass",
)

# Packages whose presence means another vendor's hardware: a simulation leaves them missing.
OTHER_VENDORS = (
    "torch_npu",
    "torch_musa",
    "torchada",
    "torch_xla",
    "habana_frameworks",
    "aiter",
    "mlx",
    "sgl_kernel_npu",
)

# torch, triton and the CUDA runtime know the SM from this CUDA version on.
LEAST_CUDA = {"12.0": "12.8", "12.1": "12.9"}
