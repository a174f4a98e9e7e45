# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Rules on arguments together: what is known to fail at a start, and what is known to be dangerous."""

from __future__ import annotations

from collections.abc import Iterator

from ..finding import ERROR, WARNING, Finding
from .args_declared import Declared
from .check import Kind, check

_VALIDATION = "srt/arg_groups/validation_hook.py: check_server_args"
_SERVING = "srt/arg_groups/serving_hook.py"

KEYS_WITH_WORKERS = Kind(
    "args.keys_with_tokenizer_workers",
    ERROR,
    "a key with several tokenizer workers",
    "An API key is refused: every worker dies of it after the model is loaded. An admin key alone is accepted and not "
    "enforced: the workers install no authentication.",
    "leave the keys out, or use one tokenizer worker",
    "srt/entrypoints/http_server.py: the start of a worker",
)
KEYS_WITH_GRPC = Kind(
    "args.keys_with_grpc",
    ERROR,
    "a key with grpc-port",
    "The server ends at once: its native gRPC listener would go round the keys.",
    "leave the keys out, or leave grpc-port out",
    _SERVING,
)
WORKERS_WITH_GRPC = Kind(
    "args.tokenizer_workers_with_grpc",
    ERROR,
    "several tokenizer workers with grpc-port",
    "The server ends at once.",
    "use one tokenizer worker, or leave grpc-port out",
    _SERVING,
)
WORKERS_DRAIN = Kind(
    "args.tokenizer_workers_drain",
    WARNING,
    "several tokenizer workers",
    "On SIGTERM the first idle worker ends the schedulers while others still answer: their requests are lost, and the "
    "server may never exit.",
    "use one tokenizer worker; a rollout drains the server empty before it stops, a plain `systemctl stop` does not",
    "run with both releases",
)
REUSEPORT = Kind(
    "args.http_worker_reuseport",
    WARNING,
    "enable-http-worker-reuseport",
    "It is a variant of several tokenizer workers, and its drain is not known to be better.",
    "leave it out, or drain the server through the gateway before every stop",
    "srt/entrypoints/http_server.py of 0.5.23, as read",
)
NODES_WITHOUT_ADDRESS = Kind(
    "args.nodes_without_address",
    ERROR,
    "several nodes without dist-init-addr",
    "The ranks have no common address: the server ends at once, or waits for the others until a timeout.",
    "give dist-init-addr as HOST:PORT of the first node, the same on all nodes",
    "srt/server_args.py: PortArgs.init_new",
)
PARALLEL_SIZES = Kind(
    "args.parallel_sizes",
    ERROR,
    "parallel sizes that do not fit together",
    "The server ends at once, with an assertion.",
    "choose sizes that divide each other as the message says",
    _VALIDATION + "; srt/arg_groups/parallel_hook.py",
)
SERVED_NAME = Kind(
    "args.served_name_colon",
    ERROR,
    "a served model name with a colon",
    "The server ends at once: the colon divides a model from an adapter.",
    "served-model-name: a name without a colon",
    _VALIDATION,
)
CERTIFICATE = Kind(
    "args.certificate_pair",
    ERROR,
    "half of a certificate",
    "The server ends at once, or speaks plain HTTP.",
    "give ssl-certfile and ssl-keyfile together",
    _SERVING,
)
CONFLICT = Kind(
    "args.conflict",
    ERROR,
    "arguments that exclude or need each other",
    "The server ends at once, with a message or an assertion.",
    "leave one of them out, or give the missing one",
    _VALIDATION,
)

RANGE = Kind(
    "args.range",
    ERROR,
    "a number outside of what can work",
    "The server ends when it lays out its memory, or starts and serves nothing.",
    "give a number that the message names, or leave the argument out",
    "srt/model_executor: the sizes of the pools",
)
# Without a single request or token the pools cannot be made. The others start, and serve nothing useful.
_AT_LEAST_ONE = {
    "max-running-requests": ERROR,
    "max-total-tokens": ERROR,
    "context-length": WARNING,
    "page-size": WARNING,
    "max-prefill-tokens": WARNING,
}


def _native_grpc(declared: Declared) -> str | None:
    """What turns the native gRPC server on."""
    if declared.is_on("smg-grpc-mode") or declared.is_on("grpc-mode"):
        return None
    if declared.arguments.get("grpc-port") not in (None, ""):
        return "grpc-port"
    return "SGLANG_GRPC_PORT" if declared.variable("SGLANG_GRPC_PORT") else None


def _workers(declared: Declared) -> int:
    return declared.whole("tokenizer-worker-num", 1)


def nodes(declared: Declared) -> int:
    return max(declared.whole("nnodes", 1), declared.nnodes)


@check(KEYS_WITH_WORKERS)
def keys_with_workers(declared: Declared) -> Iterator[Finding]:
    workers = _workers(declared)
    if declared.keys and workers > 1:
        yield KEYS_WITH_WORKERS.found(
            f"{' and '.join(declared.keys)} with tokenizer-worker-num {workers}: SGLang refuses an API key there, and "
            "accepts an admin key without enforcing it",
            declared.evidence(f"tokenizer-worker-num: {workers}; {', '.join(declared.keys)} set"),
        )


@check(KEYS_WITH_GRPC)
def keys_with_grpc(declared: Declared) -> Iterator[Finding]:
    by = _native_grpc(declared)
    if declared.keys and by:
        yield KEYS_WITH_GRPC.found(
            f"{' and '.join(declared.keys)} with {by}: SGLang refuses the two together",
            declared.evidence(f"{by} and {', '.join(declared.keys)} set"),
        )


@check(WORKERS_WITH_GRPC)
def workers_with_grpc(declared: Declared) -> Iterator[Finding]:
    by, workers = _native_grpc(declared), _workers(declared)
    if by and workers > 1:
        yield WORKERS_WITH_GRPC.found(
            f"tokenizer-worker-num {workers} with {by}: SGLang refuses the two together",
            declared.evidence(f"tokenizer-worker-num: {workers}; {by} set"),
        )


@check(WORKERS_DRAIN)
def workers_drain(declared: Declared) -> Iterator[Finding]:
    workers = _workers(declared)
    if workers > 1 and not declared.keys:
        yield WORKERS_DRAIN.found(
            f"tokenizer-worker-num is {workers}: on SIGTERM the first idle worker ends the schedulers while others "
            "still answer, and the server may never exit",
            declared.evidence(f"tokenizer-worker-num: {workers}"),
        )


@check(REUSEPORT)
def reuseport(declared: Declared) -> Iterator[Finding]:
    if declared.is_on("enable-http-worker-reuseport"):
        yield REUSEPORT.found(
            "enable-http-worker-reuseport: several processes answer on one port, and a stop loses what the others run",
            declared.evidence("enable-http-worker-reuseport: true"),
        )


@check(NODES_WITHOUT_ADDRESS)
def nodes_without_address(declared: Declared) -> Iterator[Finding]:
    count = nodes(declared)
    if count < 2 or declared.arguments.get("dist-init-addr"):
        return
    if declared.variable("SGLANG_DISTRIBUTED_INIT_METHOD_OVERRIDE"):
        return
    yield NODES_WITHOUT_ADDRESS.found(
        f"nnodes is {count} and dist-init-addr is missing: the ranks cannot find each other",
        declared.evidence(f"nnodes: {count}, dist-init-addr: not given"),
    )


@check(PARALLEL_SIZES)
def parallel_sizes(declared: Declared) -> Iterator[Finding]:
    for text in _wrong_sizes(declared):
        yield PARALLEL_SIZES.found(text, declared.evidence(_sizes(declared)))


def _wrong_sizes(declared: Declared) -> Iterator[str]:
    tp, pp = declared.whole("tp-size", 1), declared.whole("pp-size", 1)
    count = nodes(declared)
    if declared.nnodes < 1:
        yield f"nnodes is {declared.nnodes}, expected at least 1"
        return
    for name, least in (
        ("tp-size", 1),
        ("pp-size", 1),
        ("dp-size", 1),
        ("attn-dp-size", 1),
        ("attn-cp-size", 1),
        ("moe-dp-size", 1),
        ("nnodes", 1),
        ("tokenizer-worker-num", 1),
        ("detokenizer-worker-num", 1),
        ("gpu-id-step", 1),
        ("base-gpu-id", 0),
    ):
        if declared.whole(name, least) < least:
            yield f"{name} is {declared.whole(name, least)}, expected at least {least}"
            return
    if declared.arguments.get("elastic-ep-join-mode") != "scale" and (tp * pp) % count:
        yield f"tp-size {tp} x pp-size {pp} does not divide by nnodes {count}"
    dp = declared.whole("dp-size", 1)
    attention_dp = declared.whole("attn-dp-size", 1)
    if declared.is_on("enable-dp-attention"):
        attention_dp = max(dp, attention_dp)
    elif dp > 1 and count > 1:
        yield f"dp-size {dp} with nnodes {count}: replicas over several nodes are refused; use attn-dp-size"
    context = declared.whole("attn-cp-size", 1)
    if tp % (attention_dp * context):
        yield f"tp-size {tp} does not divide by attn-dp-size {attention_dp} x attn-cp-size {context}"
    experts = declared.whole("moe-dp-size", 1)
    if tp % experts:
        yield f"tp-size {tp} does not divide by moe-dp-size {experts}"


def _sizes(declared: Declared) -> str:
    names = ("tp-size", "pp-size", "dp-size", "attn-dp-size", "attn-cp-size", "moe-dp-size", "nnodes", "base-gpu-id")
    return ", ".join(f"{name}: {declared.arguments[name]}" for name in names if name in declared.arguments)


@check(SERVED_NAME)
def served_name(declared: Declared) -> Iterator[Finding]:
    name = declared.served_name or declared.model
    # An address of object storage is let through.
    if ":" in name and not name.lower().startswith(("s3://", "gs://", "az://")):
        also = "" if declared.served_name else ": it is the path of the model, for want of a served_model_name"
        yield SERVED_NAME.found(
            f"the served model name '{name}' contains a colon, which SGLang refuses{also}",
            declared.evidence(f"served model name: {name}"),
        )


@check(CERTIFICATE)
def certificate_pair(declared: Declared) -> Iterator[Finding]:
    have = [name for name in ("ssl-certfile", "ssl-keyfile") if declared.arguments.get(name)]
    if len(have) == 1:
        yield CERTIFICATE.found(
            "ssl-certfile and ssl-keyfile belong together, one of them is missing in arguments",
            declared.evidence(f"only {have[0]} is given"),
        )
    if len(have) < 2 and declared.is_on("enable-ssl-refresh"):
        yield CERTIFICATE.found(
            "enable-ssl-refresh needs ssl-certfile and ssl-keyfile",
            declared.evidence("enable-ssl-refresh: true, no certificate is given"),
        )


@check(CONFLICT)
def conflicts(declared: Declared) -> Iterator[Finding]:
    for text in _conflicts(declared):
        yield CONFLICT.found(text, declared.evidence(text))


def _conflicts(declared: Declared) -> Iterator[str]:
    given, on = declared.arguments, declared.is_on
    if on("export-metrics-to-file") and given.get("export-metrics-to-file-dir") is None:
        yield "export-metrics-to-file needs export-metrics-to-file-dir"
    if on("disable-cuda-graph-padding") and on("enable-torch-compile"):
        yield "disable-cuda-graph-padding excludes enable-torch-compile"
    if given.get("retraction-policy") == "priority" and not on("enable-priority-scheduling"):
        yield "retraction-policy priority needs enable-priority-scheduling"
    policy = given.get("schedule-policy", "fcfs")
    if on("enable-priority-scheduling") and policy not in ("fcfs", "lof"):
        yield f"enable-priority-scheduling needs schedule-policy fcfs or lof, not {policy}"
    grpc = declared.whole("grpc-port", 0)
    if grpc and grpc == declared.port and _native_grpc(declared):
        yield f"grpc-port is the server's port {grpc} too"
    if given.get("grpc-port") is not None and not 1 <= grpc <= 65535:
        yield f"grpc-port {given['grpc-port']} is no port: 1 to 65535"
    if on("enable-http-worker-reuseport") and (_workers(declared) == 1 or on("enable-http2")):
        yield "enable-http-worker-reuseport needs tokenizer-worker-num above 1 and excludes enable-http2"
    if given.get("sidecar-args") is not None and given.get("sidecar") is None:
        yield "sidecar-args needs sidecar"
    if _number(given.get("schedule-conservativeness"), 0.0) < 0:
        yield f"schedule-conservativeness {given['schedule-conservativeness']} is negative"
    thresholds = given.get("gc-threshold")
    if isinstance(thresholds, list) and len(thresholds) > 3:
        yield f"gc-threshold takes 1 to 3 numbers, not {len(thresholds)}"


@check(RANGE)
def in_range(declared: Declared) -> Iterator[Finding]:
    given = declared.arguments
    fraction = _number(given.get("mem-fraction-static"), 0.5)
    if not 0 < fraction < 1:
        yield RANGE.found(
            f"mem-fraction-static is {given['mem-fraction-static']}: it is a part of the card's memory, above 0 and "
            "below 1",
            declared.evidence(f"mem-fraction-static: {given['mem-fraction-static']}"),
            "mem-fraction-static: 0.85",
        )
    for name, severity in _AT_LEAST_ONE.items():
        if declared.whole(name, 1) < 1:
            yield RANGE.found(
                f"{name} is {given[name]}, expected at least 1",
                declared.evidence(f"{name}: {given[name]}"),
                "leave it out, and the server chooses",
                severity=severity,
            )
    port = declared.port
    if port is not None and not 1 <= port <= 65535:
        yield RANGE.found(
            f"port {port} is not a port (1 to 65535)"
            + (", and 0 is any free one, which no client knows" if not port else ""),
            declared.evidence(f"port: {port}"),
            "give a port, as 30000",
            severity=ERROR if port else WARNING,
        )


def _number(value: object, default: float) -> float:
    try:
        return default if value is None else float(str(value))
    except ValueError:
        return default


CHECKS = (
    keys_with_workers,
    keys_with_grpc,
    workers_with_grpc,
    workers_drain,
    reuseport,
    nodes_without_address,
    parallel_sizes,
    served_name,
    certificate_pair,
    conflicts,
    in_range,
)
