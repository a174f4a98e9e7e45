# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What differs between releases of SGLang in how memory is divided. One table keyed by version; rules only read it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from .memory_tables import ARCHITECTURES
from .releases import release_for


@dataclass(frozen=True)
class ContextParallelGraph:
    """A context-parallel layout that keeps the prefill graph."""

    strategy: str
    attention_backend: str
    architecture: str | None = None


@dataclass(frozen=True)
class MemoryRelease:
    """How one release sizes the static memory.

    `mla_shapes_to` caps the prefill shapes of an MLA model, `mla_shapes_follow_chunk` caps them at the chunk as well.
    `architectures` names kinds of architectures, as tools/memory_tables.py read them from the wheel.
    `prefill_graph` and `prefill_shapes_to` are the defaults of single architectures. `workers_floor` is the least
    number of requests of a worker after the division by attention DP. `groups_in_baseline`: the free memory that the
    fraction is a share of is measured once the process groups are there.
    """

    version: str
    architectures: Mapping[str, Sequence[str]]
    mla_shapes_to: int
    mla_shapes_follow_chunk: bool
    context_parallel_graphs: tuple[ContextParallelGraph, ...]
    context_parallel_keeps_deepseek_v4: bool
    post_capture_architectures: tuple[str, ...]
    cpu_limit_counts: bool
    workers_floor: int
    prefill_graph: Mapping[str, str]
    prefill_shapes_to: Mapping[str, int]
    kv_dtype: Mapping[str, str]
    groups_in_baseline: bool = True
    assumed: bool = False

    def has(self, kind: str, architecture: str | None) -> bool:
        """Whether this release counts the architecture among that kind."""
        return architecture in self.architectures[kind]


_PREFILL_GRAPH = {
    "InklingForConditionalGeneration": "full",
    "InklingForConditionalGenerationMTP": "full",
}
_PREFILL_SHAPES_TO = {"MuseGlimmerForCausalLM": 512, "MuseGlimmerForConditionalGeneration": 512}
_DEEPSEEK_V4_KV = {"DeepseekV4ForCausalLM": "fp8_e4m3"}

MEMORY_RELEASES: dict[str, MemoryRelease] = {
    release.version: release
    for release in (
        MemoryRelease(
            version="0.5.22",
            architectures=ARCHITECTURES["0.5.22"],
            mla_shapes_to=2048,
            mla_shapes_follow_chunk=False,
            context_parallel_graphs=(
                ContextParallelGraph("zigzag", "trtllm_mha"),
                ContextParallelGraph("interleave", "dsv4"),
            ),
            context_parallel_keeps_deepseek_v4=False,
            post_capture_architectures=(),
            cpu_limit_counts=False,
            workers_floor=0,
            prefill_graph=_PREFILL_GRAPH,
            prefill_shapes_to=_PREFILL_SHAPES_TO,
            kv_dtype=_DEEPSEEK_V4_KV,
        ),
        MemoryRelease(
            version="0.5.23",
            architectures=ARCHITECTURES["0.5.23"],
            mla_shapes_to=8192,
            mla_shapes_follow_chunk=True,
            context_parallel_graphs=(
                ContextParallelGraph("zigzag", "trtllm_mha"),
                ContextParallelGraph("interleave", "dsa", "Glm5NextForConditionalGeneration"),
            ),
            context_parallel_keeps_deepseek_v4=True,
            post_capture_architectures=("MuseSparkForConditionalGeneration",),
            cpu_limit_counts=True,
            workers_floor=1,
            prefill_graph=_PREFILL_GRAPH,
            prefill_shapes_to=_PREFILL_SHAPES_TO,
            kv_dtype={**_DEEPSEEK_V4_KV, "MuseSparkForConditionalGeneration": "fp8_e4m3"},
        ),
    )
}


# Measured at 0.5.17: there the baseline came first. Nothing else is known of what is older than the table.
_OLDER = replace(MEMORY_RELEASES["0.5.22"], groups_in_baseline=False, assumed=True)


def memory_release_for(version: str) -> MemoryRelease:
    """The data of this version, or of the nearest one that has any, marked as assumed."""
    if version in MEMORY_RELEASES:
        return MEMORY_RELEASES[version]
    nearest = MEMORY_RELEASES.get(release_for(version).version)
    return _OLDER if nearest is None else replace(nearest, assumed=True)
