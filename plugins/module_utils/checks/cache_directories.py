# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which directories a release of SGLang and its libraries write kernels and weights to, for an environment and a home.

Pure. What SGLang itself decides comes from cache_tables; what a library does without it stands here.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from dataclasses import dataclass

from ..release_pins import PINS
from ..releases import release_for
from .cache_tables import DEFAULTS

# What a lock file of a cache is: held through the kernel, which lets go when its holder dies, or by being there.
BY_KERNEL = "flock"
BY_EXISTENCE = "existence"


@dataclass(frozen=True)
class CacheDirectory:
    """One cache, whatever the release: who fills it, which variable moves it, where its library puts it by itself.

    `below` is what the library adds to the value of the variable. `loaded`: code of it is loaded into the process, so
    its mount must not be noexec. `compiled` are the endings of what proves that kernels were compiled.
    """

    name: str
    variable: str
    library_default: str
    holds: str
    below: str = ""
    loaded: bool = True
    compiled: tuple[str, ...] = (".so", ".cubin")
    empty_is_off: bool = False

    @property
    def kernels(self) -> bool:
        return bool(self.compiled)


SGLANG = CacheDirectory(
    "sglang",
    "SGLANG_CACHE_DIR",
    "{home}/.cache/sglang",
    "results of autotuning and of the check for peer access, torch.compile's graphs, Rust extensions",
    loaded=True,
    compiled=(),
)
CACHES = (
    SGLANG,
    CacheDirectory("jit", "SGLANG_JIT_CACHE_DIR", "", "SGLang's own kernels"),
    CacheDirectory("flashinfer", "FLASHINFER_WORKSPACE_BASE", "{home}", "FlashInfer's kernels", ".cache/flashinfer"),
    CacheDirectory(
        "triton", "TRITON_CACHE_DIR", "{home}/.triton/cache", "Triton's kernels and their launchers", "", True
    ),
    CacheDirectory(
        "deep_gemm", "SGLANG_DG_CACHE_DIR", "", "DeepGEMM's kernels", loaded=False, compiled=(".cubin", ".so")
    ),
    CacheDirectory("tvm_ffi", "TVM_FFI_CACHE_DIR", "{home}/.cache/tvm-ffi", "kernels and bridges built by TVM FFI"),
    CacheDirectory("inductor", "TORCHINDUCTOR_CACHE_DIR", "{tmp}/torchinductor_{user}", "torch.compile's kernels"),
    CacheDirectory("torch_extensions", "TORCH_EXTENSIONS_DIR", "{xdg}/torch_extensions", "extensions built by torch"),
    CacheDirectory("tilelang", "TILELANG_CACHE_DIR", "{home}/.tilelang/cache", "TileLang's kernels"),
    CacheDirectory(
        "cute_aot", "SGLANG_CUTE_AOT_CACHE_DIR", "", "CuTe's compiled objects", "", True, (".o", ".so"), True
    ),
    CacheDirectory(
        "nv", "CUDA_CACHE_PATH", "{home}/.nv/ComputeCache", "what the driver compiles from PTX", "", False, ()
    ),
    CacheDirectory("huggingface", "HF_HUB_CACHE", "{hf_home}/hub", "weights and tokenizers", "", False, ()),
)


@dataclass(frozen=True)
class Place:
    """Where one cache of one server is, as that server sees the file system.

    `follows` says that it moves with SGLANG_CACHE_DIR. `explicit`: its own variable is set.
    """

    cache: CacheDirectory
    path: str
    follows: bool
    explicit: bool


@dataclass(frozen=True)
class CacheRelease:
    """What one release does about its caches; `assumed` when these are the data of another one.

    `flashinfer` is the release of FlashInfer that it asks for; empty where that is not known.
    """

    version: str
    defaults: Mapping[str, str]
    flashinfer: str
    assumed: bool

    def places(self, environment: Mapping[str, str], home: str, user: str = "root") -> list[Place]:
        """Every cache of a server with this environment, in the order of the table."""
        words = _words(self, environment, home, user)
        found = (self._place(cache, environment, words) for cache in CACHES)
        return [place for place in found if place is not None]

    def _place(self, cache: CacheDirectory, environment: Mapping[str, str], words: Mapping[str, str]) -> Place | None:
        default = self.defaults.get(cache.variable) or cache.library_default
        if not default:
            return None  # this release has no such cache
        value = environment.get(cache.variable)
        if value == "" and cache.empty_is_off:
            return None
        # An empty value counts as set where SGLang only fills gaps, and each library then takes its own default.
        if value == "" and cache.library_default:
            default = cache.library_default
        explicit = bool(value)
        path = _expanded(value or default.format(**words), words["home"])
        follows = not explicit and "{base}" in default
        return Place(cache, _normal(posixpath.join(path, cache.below)), follows or cache is SGLANG, explicit)


def cache_release_for(version: str) -> CacheRelease:
    """The data of this version, or of the nearest one, marked as assumed."""
    release = release_for(version)
    requires = PINS.get(release.version, {}).get("requires", {})
    flashinfer = str(requires.get("flashinfer-python", "")).lstrip("=")
    return CacheRelease(release.version, DEFAULTS[release.version], flashinfer, release.assumed)


def _words(release: CacheRelease, environment: Mapping[str, str], home: str, user: str) -> dict[str, str]:
    home = environment.get("HOME") or home
    xdg = environment.get("XDG_CACHE_HOME") or f"{home}/.cache"
    base = environment.get("SGLANG_CACHE_DIR") or release.defaults["SGLANG_CACHE_DIR"].format(home=home)
    return {
        "home": home,
        "user": user,
        "xdg": xdg,
        "tmp": environment.get("TMPDIR") or "/tmp",
        "base": _expanded(base, home),
        "hf_home": _expanded(environment.get("HF_HOME") or f"{xdg}/huggingface", home),
    }


def _expanded(path: str, home: str) -> str:
    return home + path[1:] if path == "~" or path.startswith("~/") else path


def _normal(path: str) -> str:
    return posixpath.normpath(path)
