# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where releases of SGLang put their caches. Made by tools/cache_tables.py: do not edit."""

from __future__ import annotations

# fmt: off
DEFAULTS: dict[str, dict[str, str]] = {
    "0.5.17": {
        "SGLANG_CACHE_DIR": "{home}/.cache/sglang",
        "SGLANG_DG_CACHE_DIR": "{home}/.cache/deep_gemm",
        "TVM_FFI_CACHE_DIR": "{home}/.cache/tvm-ffi",
    },
    "0.5.22": {
        "CUDA_CACHE_PATH": "{base}/nv",
        "FLASHINFER_WORKSPACE_BASE": "{base}",
        "SGLANG_CACHE_DIR": "{home}/.cache/sglang",
        "SGLANG_CUTE_AOT_CACHE_DIR": "{base}/cute_aot",
        "SGLANG_DG_CACHE_DIR": "{base}/deep_gemm",
        "SGLANG_JIT_CACHE_DIR": "{home}/.cache/sglang/jit",
        "TILELANG_CACHE_DIR": "{base}/tilelang",
        "TORCHINDUCTOR_CACHE_DIR": "{base}/inductor",
        "TRITON_CACHE_DIR": "{base}/triton",
    },
    "0.5.23": {
        "CUDA_CACHE_PATH": "{base}/nv",
        "FLASHINFER_WORKSPACE_BASE": "{base}",
        "SGLANG_CACHE_DIR": "{home}/.cache/sglang",
        "SGLANG_CUTE_AOT_CACHE_DIR": "{base}/cute_aot",
        "SGLANG_DG_CACHE_DIR": "{base}/deep_gemm",
        "SGLANG_JIT_CACHE_DIR": "{home}/.cache/sglang/jit",
        "TILELANG_CACHE_DIR": "{base}/tilelang",
        "TORCHINDUCTOR_CACHE_DIR": "{base}/inductor",
        "TRITON_CACHE_DIR": "{base}/triton",
    },
}
