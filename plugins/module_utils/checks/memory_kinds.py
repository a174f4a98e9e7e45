# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the memory rules can find: the kinds of memory_findings, pool_advice and of the area memory of a preflight."""

from __future__ import annotations

from ..finding import ERROR, WARNING
from .check import Kind

NO_POOL = Kind(
    "memory.no_pool",
    ERROR,
    "no pool: the memory does not suffice",
    "SGLang loads the weights and then ends with `Not enough memory`, because nothing is left for the pool of tokens.",
    "fewer or smaller weights for each card (quantization, a larger tp-size), other cards, or another mem_fraction",
    "SGLang's memory pool, model_runner.init_memory_pool; docs/memory.md",
)
NOT_PREDICTED = Kind(
    "memory.not_predicted",
    WARNING,
    "the pool is not predicted",
    "Whether the memory suffices is not known before the start: the model is not on the host, its architecture is not "
    "one whose pool is computed here, or the cards could not be read (then the finding is unknown).",
    "put the model on the host and name its folder, or compute it elsewhere with playbooks/size.yml",
    "docs/memory.md",
)
DOUBTFUL = Kind(
    "memory.doubtful",
    WARNING,
    "the plan of the memory has a reservation",
    "The fraction can work, and something about it is not as it should be; the finding says what.",
    "see `ansible-playbook serving.sglang.size` for the sums",
    "docs/memory.md",
)

MODEL_BROKEN = Kind(
    "memory.model_broken",
    ERROR,
    "the model's configuration cannot be loaded",
    "The file is there and is no configuration: no JSON, a directory or a pipe, far too large, or nested without end. "
    "SGLang ends when it reads it.",
    "copy the model again",
    "SGLang, utils.hf_transformers_utils",
)

MEMORY_KINDS = (
    NO_POOL,
    NOT_PREDICTED,
    MODEL_BROKEN,
    DOUBTFUL,
    Kind(
        "memory.unbalanced_cards",
        ERROR,
        "cards of one instance differ in free memory",
        "SGLang refuses to start when a rank has less than 0.9 times the free memory of another one. A warning where "
        "that check is switched off.",
        "free that card, or give the instance other cards",
        "SGLang, model_runner.init_torch_distributed: `The memory capacity is unbalanced`",
    ),
    Kind(
        "memory.foreign_process",
        WARNING,
        "another process holds memory of the cards",
        "The fraction does not look at what others hold: their memory comes out of the pool.",
        "end them, or declare the cards as shared so that the fraction is chosen from what is left",
        "SGLang's automatic rule; docs/memory.md",
    ),
    Kind(
        "memory.another_process_grew",
        ERROR,
        "another process took memory after the start",
        "A server sizes its pool once. When a neighbour grows afterwards, the server runs out of memory.",
        "end the other process or move it",
        "docs/memory.md",
    ),
    Kind(
        "memory.lower_the_fraction",
        WARNING,
        "a lower fraction leaves more for others",
        "On a card that others use, the room beside the pool is what they may still take.",
        "choose the fraction for a shared card from its free memory at the low point",
        "docs/memory.md",
    ),
    Kind(
        "memory.host_limit",
        ERROR,
        "the host's memory does not suffice for a start",
        "What a start pins (hierarchical cache, offloaded weights) and its processes need more than the host has, or "
        "its control group allows: the kernel kills the server.",
        "lower hicache-size or cpu-offload-gb, or raise memory_max of the instance",
        "measured on an H200; SGLang, memory_pool_host",
    ),
    Kind(
        "memory.host_limit_cold",
        WARNING,
        "the host's memory does not suffice for a cold start",
        "Compiling kernels takes many times the memory of a warm start; the compiler is killed and the start fails.",
        "warm the kernel caches first, or raise memory_max for the first start",
        "measured on an H200: 2.9 GiB warm, 3.5 cold, 24.5 when nvcc compiles",
    ),
    Kind(
        "memory.page_cache",
        WARNING,
        "page cache on unified memory",
        "Tools that read CUDA's own figure see less free memory than SGLang, which counts what the cache gives back.",
        "nothing for SGLang; do not size it by CUDA's figure",
        "SGLang, utils.common.get_available_gpu_memory",
    ),
    Kind(
        "memory.shm_same_pool",
        WARNING,
        "/dev/shm comes out of unified memory",
        "Shared memory, weights and pool are one memory on such a machine: a full /dev/shm starves the server.",
        "a smaller shared memory (tp 1 needs little), or a lower fraction",
        "docs/memory.md",
    ),
    Kind(
        "memory.pinned_pages",
        ERROR,
        "pages that cannot be reclaimed",
        "Segments of a dead server or locked pages hold unified memory. Starting again at once fails again.",
        "find who holds them (`ipcs -m; ls -l /dev/shm`) and start when they are gone",
        "public reports on GB10; docs/memory.md",
    ),
    Kind(
        "memory.request_slots",
        ERROR,
        "request slots ran out",
        "More requests ran at once than there are slots. It reads like a lack of memory of the card and is none.",
        "raise or set max-running-requests; the fraction is not the lever",
        "SGLang's log: `alloc_req_slots runs out of memory`",
    ),
    Kind(
        "memory.card_out_of_memory",
        ERROR,
        "the card ran out of memory beside the pool",
        "Too much was given to the pool: a long prompt needs memory outside of it. A larger pool makes it worse.",
        "lower the fraction as the advice says, or a smaller chunked-prefill-size",
        "SGLang's log; docs/memory.md",
    ),
    Kind(
        "memory.pool_shrink",
        WARNING,
        "the pool is larger than it is used",
        "The card could be shared with others.",
        "lower the fraction as the advice says",
        "the log of the server, by pool_advice",
    ),
    Kind(
        "memory.pool_raise",
        WARNING,
        "the pool is full while the card has room",
        "Requests are taken back and computed again although memory lies idle.",
        "raise the fraction as the advice says",
        "the log of the server, by pool_advice",
    ),
    Kind(
        "memory.pool_lower",
        WARNING,
        "the fraction is too high",
        "What runs beside the pool has too little room.",
        "lower the fraction as the advice says",
        "the log of the server, by pool_advice",
    ),
    Kind(
        "memory.pool_other_lever",
        WARNING,
        "something else than the fraction limits the server",
        "Changing the fraction would change nothing.",
        "change what the advice names",
        "the log of the server, by pool_advice",
    ),
)
