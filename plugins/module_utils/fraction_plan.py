# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The memory plan of one instance: from its model, its arguments and the readings of its machine to the fraction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from . import machine, memory_findings
from .apple_choice import choose_apple
from .finding import Finding
from .fraction_choice import DEDICATED, UNIFIED, Case, Choice, Machine, choose, inputs_key, rule_sum
from .fraction_window import Window
from .kv_cell import PoolError, WillNotStart
from .kv_pool import AppleMemory, Memory, Pool
from .machine import Card, Kind, Readings
from .memory import Capacity, Fraction, automatic_fraction
from .memory_arguments import MemoryArguments, read_arguments
from .memory_estimate import Estimate, expected_memory, weights_gib
from .memory_releases import MemoryRelease, memory_release_for
from .model import Model
from .model_files import read_model

AUTO = "auto"
CHOOSE = "choose"
REQUEST_TOKENS = (2048, 8192, 32768)


@dataclass(frozen=True)
class Options:
    """What is asked: the instance, and what is known of its machine."""

    model: str
    version: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    policy: str | float = CHOOSE
    readings: Readings | None = None
    cards: Sequence[Any] = ()
    kind: str | None = None
    platform: str = "cuda"
    capacity_mib: float | None = None
    compute_major: int | None = None
    free_mib: float | None = None
    before_gib: float | None = None
    after_gib: float | None = None
    weights_gib: float | None = None
    draft_model: str | None = None
    wanted_tokens: int = 0
    request_tokens: Sequence[int] = REQUEST_TOKENS
    neighbours_may_take_gib: float = 0.0
    host_reserve_gib: float | None = None
    needed_outside_gib: float | None = None
    shm_gib: float | None = None
    proven: float | None = None
    kept: Mapping[str, Any] | None = None


def from_params(params: Mapping[str, Any]) -> dict[str, Any]:
    """The plan from the options of the module `mem_fraction`."""
    values = {name: value for name, value in params.items() if name in Options.__dataclass_fields__}
    readings = params.get("readings")
    for name in ("capacity_mib", "free_mib", "weights_gib"):
        value = values.get(name)
        if value is not None and not (value > 0 and value != float("inf")):
            raise PoolError(f"{name}: {value} is not a positive number")
    if values.get("wanted_tokens", 0) < 0 or any(tokens <= 0 for tokens in values.get("request_tokens") or ()):
        raise PoolError("wanted_tokens and request_tokens: a number of tokens is not negative, and a request has some")
    values["policy"] = params["mem_fraction"]
    values["environment"] = {str(key): str(value) for key, value in (params.get("environment") or {}).items()}
    values["readings"] = machine.readings_from(readings) if readings else None
    result = plan(Options(**values))
    # Ansible shows what is called `warnings` itself, as its own.
    result["warnings_found"] = result.pop("warnings")
    return result


def plan(options: Options) -> dict[str, Any]:
    """The fraction with its reasons, the pool it leads to, the window it lies in, and what to watch."""
    release = memory_release_for(options.version)
    arguments = read_arguments({**options.arguments, "model-path": options.model}, options.environment, options.version)
    given = _given_fraction(options, arguments)
    arguments = replace(arguments, mem_fraction_static=given)
    model, _config = read_model(options.model, release)
    draft = read_model(options.draft_model, release)[0] if options.draft_model else None
    used = _used_cards(options, arguments)
    kind = _kind(options, used)
    capacity = _capacity(options, release)
    automatic = automatic_fraction(capacity, replace(arguments, mem_fraction_static=None), model.traits, release)
    if options.platform == "mps" and options.environment.get("SGLANG_USE_MLX"):
        return _apple(options, arguments, automatic, model, release.assumed)
    served = automatic_fraction(capacity, arguments, model.traits, release) if given is not None else automatic
    if not model.known:
        return _of_unknown_model(options, served, kind, model, release.assumed)
    estimate, measured = _memory(options, model, draft, arguments, capacity, release, kind.kind, used)
    case = Case(
        automatic=automatic,
        model=model,
        arguments=arguments,
        capacity=capacity,
        release=release,
        machine=Machine(
            kind=kind.kind,
            memory=estimate.memory,
            neighbours_may_take_gib=options.neighbours_may_take_gib,
            host_reserve_gib=options.host_reserve_gib,
            needed_outside_gib=options.needed_outside_gib,
            neighbours_hold_gib=max((machine.neighbours_mib(card) for card in used), default=0.0) / 1024,
        ),
        draft=draft,
        draft_gib=estimate.draft_gib,
        wanted_tokens=options.wanted_tokens,
    )
    key = _inputs(options, model, capacity, kind)
    result = _result(case, options, served, kind, key)
    result["estimate"] = {
        "before_gib": round(estimate.memory.before_gib, 3),
        "after_gib": round(estimate.memory.after_gib, 3),
        "weights_gib": round(estimate.weights_gib, 3),
        "draft_gib": round(estimate.draft_gib, 3),
        "measured": measured,
        "why": list(estimate.why),
    }
    pool_gib = (result["prediction"] or {}).get("pool_gib", 0.0)
    result["host_memory"] = memory_findings.host_memory(arguments, _workers(arguments), pool_gib)
    result["findings"] = [finding.as_dict() for finding in _findings(options, arguments, used, kind.kind, result)]
    return result


def _of_unknown_model(options: Options, served: Fraction, kind: Kind, model: Model, assumed: bool) -> dict[str, Any]:
    """What is certain of a model whose architecture is not known: SGLang's own fraction, and nothing of its pool."""
    certain = kind.kind == DEDICATED and served.capacity.mib is not None
    fraction = served.value if options.policy != CHOOSE or certain or not served.automatic else None
    why = "; ".join(model.unknown)
    first = _first_line(served, served.value) if fraction is not None else f"no fraction is chosen: {why}"
    return {
        "feasible": None,
        "fraction": fraction,
        "source": "automatic" if served.automatic else "given",
        "kept": False,
        "inputs_key": "",
        "kind": asdict(kind),
        "capacity": asdict(served.capacity),
        "automatic": automatic_dict(served),
        "reasons": [],
        "lines": [first, f"pool: not predicted, {why}", "window: not known without the bytes of a token"],
        "window": {**dict.fromkeys(("feasible", "low", "high")), "text": "not known", "inside": [], "outside": []},
        "prediction": None,
        "warnings": [f"{why}; the fraction takes it for a text model with ordinary attention"],
        "model": model_dict(model),
        "release": served.release,
        "assumed": assumed,
        "candidates": [],
        "host_memory": None,
        "estimate": {"before_gib": None, "after_gib": None, "measured": False, "why": []},
        "findings": [],
    }


def _apple(
    options: Options, arguments: MemoryArguments, automatic: Fraction, model: Model, assumed: bool
) -> dict[str, Any]:
    """The plan for MLX, whose pool is a share of what the system has available."""
    if options.capacity_mib is None or options.free_mib is None:
        raise PoolError(
            "on a Mac give capacity_mib (Metal's limit) and free_mib (memory available): nothing reads them"
        )
    weights = weights_gib(model, arguments) if options.weights_gib is None else options.weights_gib
    memory = AppleMemory(options.capacity_mib / 1024, weights, options.free_mib / 1024)
    given = arguments.mem_fraction_static
    if options.policy == AUTO and given is None:
        given = automatic.value
    choice = choose_apple(
        memory, automatic, automatic.terms, model, options.wanted_tokens, options.host_reserve_gib, given
    )
    fraction, bounds = choice.fraction, choice.window
    fits = fraction is not None and bounds.holds(fraction)
    prediction = {
        "feasible": fraction is not None,
        "max_total_num_tokens": choice.tokens,
        "pool_gib": round(choice.budget_gib, 3),
        "binds": choice.binds,
        "requests": {str(tokens): choice.tokens // tokens for tokens in options.request_tokens},
    }
    why = ("the weights are what MLX already holds", f"what the system has available: {memory.available_gib:.2f} GiB")
    return {
        "feasible": fits,
        "fraction": fraction,
        "source": "explicit" if given is None else "given",
        "kept": False,
        "inputs_key": "",
        "kind": {"kind": UNIFIED, "evidence": ["a Mac: processor and card share the memory"]},
        "capacity": asdict(automatic.capacity),
        "automatic": automatic_dict(automatic),
        "reasons": [asdict(share) for share in (*bounds.inside, *bounds.outside)],
        "lines": list(choice.lines),
        "window": window_dict(bounds),
        "prediction": prediction,
        "warnings": []
        if fits or fraction is None
        else [f"{fraction:g} lies outside of what can work: {bounds.text()}"],
        "model": model_dict(model),
        "release": automatic.release,
        "assumed": assumed,
        "candidates": [],
        "host_memory": memory_findings.host_memory(arguments, 1),
        "estimate": {
            "before_gib": round(memory.available_gib, 3),
            "after_gib": round(memory.available_gib, 3),
            "weights_gib": round(weights, 3),
            "draft_gib": 0.0,
            "measured": True,
            "why": list(why),
        },
        "findings": [],
    }


def _given_fraction(options: Options, arguments: MemoryArguments) -> float | None:
    policy = options.policy
    if isinstance(policy, (int, float)) and not isinstance(policy, bool):
        if not 0 < policy < 1:
            raise WillNotStart(f"mem_fraction: {policy} is not between 0 and 1")
        return float(policy)
    if policy not in (AUTO, CHOOSE):
        try:
            return _given_fraction(replace(options, policy=float(policy)), arguments)
        except ValueError as error:
            if isinstance(error, PoolError):
                raise
            raise WillNotStart(
                f"mem_fraction: {policy!r} is neither auto, choose nor a number between 0 and 1"
            ) from None
    return arguments.mem_fraction_static


def _used_cards(options: Options, arguments: MemoryArguments) -> list[Card]:
    """The cards of the instance, as far as they were read."""
    if options.readings is None or options.platform == "cpu":
        return []
    cards = list(options.readings.cards)
    if not options.cards:
        return cards[: _workers(arguments)]
    found = []
    for wanted in options.cards:
        match = next((card for card in cards if str(wanted) in (str(card.index), card.uuid)), None)
        if match is None:
            names = ", ".join(f"{card.index} ({card.uuid})" for card in cards) or "none"
            raise WillNotStart(f"cards: {wanted!r} is not among the cards of the host: {names}")
        found.append(match)
    return found


def _kind(options: Options, used: Sequence[Card]) -> Kind:
    if options.kind is not None:
        return Kind(options.kind, ("given",))
    if options.readings is None:
        return Kind("dedicated", ("nothing was read and nothing else was given: an empty card of its own is assumed",))
    if options.platform == "cpu":
        return Kind(UNIFIED, ("the server runs on the processors and shares the host's memory",))
    kind = machine.kind_of(replace(options.readings, cards=tuple(used) or options.readings.cards))
    if kind.kind == "unknown":
        raise PoolError(f"the machine kind cannot be told: {'; '.join(kind.evidence)}. Repair it, or give the kind")
    return kind


def _capacity(options: Options, release: MemoryRelease) -> Capacity:
    major = options.compute_major
    if options.capacity_mib is not None:
        if major is None and options.readings is not None:
            cards = options.readings.cards
            major = next((card.compute_major for card in cards if card.compute_major is not None), None)
        return Capacity(options.capacity_mib, "given", options.platform, major)
    if options.readings is None:
        return Capacity(None, "not given", options.platform, major)
    found = machine.capacity_of(options.readings, options.platform, release, options.environment)
    return replace(found, compute_major=major) if major is not None else found


def _memory(
    options: Options,
    model: Model,
    draft: Model | None,
    arguments: MemoryArguments,
    capacity: Capacity,
    release: MemoryRelease,
    kind: str,
    used: Sequence[Card],
) -> tuple[Estimate, bool]:
    if options.before_gib is not None and options.after_gib is not None:
        memory = Memory(options.before_gib, options.after_gib)
        return Estimate(memory, memory.loaded_gib, 0.0, ("free memory before and after the load was given",)), True
    integrated = kind == UNIFIED
    free = options.free_mib
    if free is None and options.readings is not None:
        if integrated:
            free = options.readings.host.available_bytes / (1 << 20)
        else:
            # What the instance itself holds is free again when it is started anew.
            read = [card.free_mib + machine.own_mib(card) for card in used if card.free_mib is not None]
            free = min(read) if read else None
    return expected_memory(model, arguments, capacity, release, integrated, free, options.weights_gib, draft), False


def _inputs(options: Options, model: Model, capacity: Capacity, kind: Kind) -> str:
    """What a choice depends on. Free memory is not among it: it moves, and the choice stays."""
    card = {"mib": capacity.mib, "platform": capacity.platform, "major": capacity.compute_major, "kind": kind.kind}
    weights = model.weights.total_bytes if model.weights is not None else None
    described = {
        "path": options.model,
        "architecture": model.architecture,
        "layers": list(model.layers),
        "heads": [asdict(part) for part in (model.full, model.sliding, model.latent, model.recurrent) if part],
        "dtype": model.dtype,
        "quantization": model.quantization,
        "weights": weights,
        "draft": options.draft_model,
    }
    asked = {
        "policy": options.policy,
        "cards": list(options.cards),
        "wanted_tokens": options.wanted_tokens,
        "neighbours_may_take_gib": options.neighbours_may_take_gib,
        "host_reserve_gib": options.host_reserve_gib,
        "needed_outside_gib": options.needed_outside_gib,
        "proven": options.proven,
        "environment": dict(options.environment),
    }
    return inputs_key(card, described, options.arguments, options.version, asked)


def _result(case: Case, options: Options, served: Fraction, kind: Kind, key: str) -> dict[str, Any]:
    choice = choose(case, options.proven)
    fraction, source, lines = choice.fraction, choice.source, list(choice.lines)
    warnings = list(choice.warnings)
    kept = False
    if options.policy == CHOOSE and case.arguments.mem_fraction_static is None:
        earlier = options.kept or {}
        if earlier.get("inputs_key") == key and isinstance(earlier.get("fraction"), (int, float)):
            fraction, source, kept = float(earlier["fraction"]), str(earlier.get("source", source)), True
            lines[0] = str((earlier.get("lines") or lines)[0])
            if not choice.window.holds(fraction):
                warnings.append(f"{fraction:g} was chosen earlier and is kept; now {choice.window.text()}")
    else:
        fraction, source = served.value, AUTO if served.automatic else "given"
        lines = _lines_of(case, served, choice.window)
        if not choice.window.holds(fraction):
            warnings.append(f"{fraction:g} lies outside of what can work: {choice.window.text()}")
    pool = case.pool(fraction) if fraction is not None and 0 < fraction < 1 else None
    return {
        "feasible": bool(pool is not None and pool.feasible and choice.window.feasible),
        "fraction": fraction,
        "source": source,
        "kept": kept,
        "inputs_key": key,
        "kind": asdict(kind),
        "capacity": asdict(case.capacity),
        "automatic": automatic_dict(case.automatic),
        "reasons": [asdict(reason) for reason in choice.reasons],
        "lines": lines,
        "window": window_dict(choice.window),
        "prediction": pool_dict(pool, options.request_tokens) if pool is not None else None,
        "warnings": warnings + (list(pool.warnings) if pool is not None else []),
        "model": model_dict(case.model),
        "release": case.release.version,
        "assumed": case.release.assumed,
        "candidates": candidates(case, choice),
    }


def _lines_of(case: Case, served: Fraction, bounds: Window) -> list[str]:
    """The three lines of a fraction that was not chosen here."""
    first = _first_line(served, case.automatic.value)
    if not 0 < served.value < 1:
        return [first, "no pool: the fraction is not between 0 and 1", bounds.text()]
    pool = case.pool(served.value)
    second = f"pool: {pool.tokens} tokens in {pool.pool_gib:.2f} GiB" if pool.feasible else f"no pool: {pool.problem}"
    return [first, second, bounds.text()]


def _first_line(served: Fraction, own: float) -> str:
    if served.automatic:
        return f"{served.value:g}: SGLang's own value, {rule_sum(served)}"
    factors = "".join(f", {factor.name} x {factor.value:g}" for factor in served.factors)
    return f"{served.value:g}: given{factors}; SGLang's own value is {own:g}"


def candidates(case: Case, choice: Choice) -> list[dict[str, Any]]:
    """How many tokens some fractions around the choice would give."""
    centre = choice.fraction if choice.fraction is not None else choice.window.low
    steps = sorted({round(min(0.99, max(0.01, centre + step)), 3) for step in (-0.04, -0.02, 0.0, 0.02, 0.04)})
    return [{"fraction": step, "tokens": case.pool(step).tokens} for step in steps]


def automatic_dict(fraction: Fraction) -> dict[str, Any]:
    return {
        "fraction": fraction.value,
        "reserve_mib": fraction.reserve_mib,
        "terms": [asdict(term) for term in fraction.terms],
        "factors": [asdict(factor) for factor in fraction.factors],
        "sum": rule_sum(fraction),
        "chunked_prefill_size": fraction.chunked_prefill_size,
        "decode_graph": {"backend": fraction.decode.backend, "max_bs": fraction.decode.max_bs},
        "prefill_graph": {
            "backend": fraction.prefill.backend,
            "max_bs": fraction.prefill.max_bs,
            "shapes": len(fraction.prefill.shapes),
        },
        "post_capture": fraction.post_capture,
        "notes": list(fraction.notes),
    }


def window_dict(bounds: Window) -> dict[str, Any]:
    return {
        "feasible": bounds.feasible,
        "low": bounds.low,
        "high": bounds.high,
        "low_exact": round(bounds.low_exact, 6),
        "high_exact": round(bounds.high_exact, 6),
        "missing_gib": round(bounds.missing_gib, 3),
        "inside": [asdict(share) for share in bounds.inside],
        "outside": [asdict(share) for share in bounds.outside],
        "remedies": [asdict(remedy) for remedy in bounds.remedies],
        "text": bounds.text(),
    }


def pool_dict(pool: Pool, request_tokens: Sequence[int]) -> dict[str, Any]:
    return {
        "feasible": pool.feasible,
        "max_total_num_tokens": pool.tokens,
        "sliding_tokens": pool.sliding_tokens,
        "pool_gib": round(pool.pool_gib, 3),
        "budget_gib": round(pool.budget_gib, 3),
        "slack_gib": round(pool.slack_gib, 3),
        "state_gib": round(pool.state_gib, 3),
        "state_slots": pool.state_slots,
        "token_bytes": pool.cell.token_bytes,
        "token_bytes_why": list(pool.cell.why),
        "kv_dtype": pool.cell.kv_dtype,
        "page_size": pool.cell.page_size,
        "max_running_requests": pool.max_running_requests,
        "longest_prompt_tokens": pool.longest_prompt_tokens,
        "request_table_gib": round(pool.request_table_gib, 3),
        "minimum_fraction": round(pool.minimum_fraction, 4),
        "asks_above": pool.asks_above,
        "requests": {str(tokens): pool.requests_of(tokens) for tokens in request_tokens},
        "problem": pool.problem,
    }


def model_dict(model: Model) -> dict[str, Any]:
    return {
        "file": model.file,
        "architecture": model.architecture,
        "family": model.family,
        "known": model.known,
        "unverified": model.unverified,
        "reference": model.reference,
        "unknown": list(model.unknown),
        "defaulted": list(model.defaulted),
        "dtype": model.dtype,
        "quantization": model.quantization,
        "context_length": model.context_length,
        "layers": {kind: model.layers.count(kind) for kind in sorted(set(model.layers))},
        "experts": model.experts,
        "draft_layers": model.draft_layers,
        "weights_bytes": model.weights.total_bytes if model.weights is not None else None,
        "weights_source": model.weights.source if model.weights is not None else None,
    }


def _workers(arguments: MemoryArguments) -> int:
    """The ranks on this host."""
    return max(1, arguments.tp_size * arguments.pp_size // arguments.nnodes)


def _findings(
    options: Options, arguments: MemoryArguments, used: Sequence[Card], kind: str, result: Mapping[str, Any]
) -> list[Finding]:
    found: list[Finding | None] = []
    free = [card.free_mib / 1024 for card in used if card.free_mib is not None]
    found.append(memory_findings.unbalanced_cards(free, used, options.environment))
    if kind != UNIFIED:
        found.append(memory_findings.foreign_memory(used))
    if options.readings is not None:
        host = options.readings.host
        pool_gib = (result["prediction"] or {}).get("pool_gib", 0.0)
        found.append(memory_findings.host_limit(host, arguments, _workers(arguments), pool_gib))
        if kind == UNIFIED:
            found += memory_findings.unified_memory(host, result["fraction"], options.shm_gib)
    return [finding for finding in found if finding is not None]
