# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""From what is wanted of a CUDA_HOME to what is there: reads, decides, and changes what differs."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from . import cuda_home, cuda_home_tree
from .checks.cuda_wheels import find_cuda_wheels
from .cuda_home import Torch, Tree
from .cuda_home_tree import Present
from .errors import EngineError
from .finding import Finding

AUTO = "auto"
PRESENT = "present"
ABSENT = "absent"
# Of a tree that differs in hundreds of files the first ones say enough.
_SHOWN_DEVIATIONS = 20


@dataclass
class Change:
    """What was changed, or would be in check mode, and what there is now."""

    path: str
    changed: bool = False
    reason: str = ""
    home: str | None = None
    tree: Tree | None = None
    torch: Torch | None = None
    findings: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    before: dict[str, Any] = field(default_factory=dict)
    after: dict[str, Any] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        tree = self.tree
        return {
            "changed": self.changed,
            "tree": self.path,
            "home": self.home,
            "reason": self.reason,
            "release": tree.release if tree else None,
            "parts": cuda_home.described(tree)["parts"] if tree else {},
            "torch_version": self.torch.version if self.torch else None,
            "torch_cuda": self.torch.cuda if self.torch else None,
            "requirements": cuda_home.requirements(self.torch) if self.torch else [],
            "findings": [finding.as_dict() for finding in self.findings],
            "notes": self.notes,
        }


def change(params: Mapping[str, Any], check_mode: bool) -> Change:
    """Bring the tree to its state. Raises EngineError and CouldNotTell."""
    environment = str(params["environment"]).rstrip("/")
    path = str(params.get("path") or os.path.join(environment, cuda_home.DIRECTORY)).rstrip("/")
    if params["state"] == ABSENT:
        return _absent(Change(path, reason="declared absent"), check_mode)

    sites = cuda_home_tree.read_site_packages(os.path.join(environment, "bin", "python"))
    torch = cuda_home_tree.read_torch(sites)
    result = Change(path, torch=torch, reason="declared present")
    if params["state"] == AUTO:
        decision = cuda_home.decide(torch, cuda_home_tree.read_toolkit(str(params["toolkit"])))
        result.reason = decision.reason
        if not decision.wanted:
            return _absent(result, check_mode)
    declared = params.get("wheels")
    own = [os.path.join(environment, cuda_home.WHEELS_DIRECTORY)] if declared is None else declared
    return _present(result, [*own, *sites], params["state"], check_mode)


def refusal(finding: Finding) -> str:
    """A finding as one message."""
    return f"{finding.summary}. Seen: {finding.evidence}. Next step: {finding.fix}."


def _present(result: Change, places: Sequence[str], state: str, check_mode: bool) -> Change:
    torch_cuda = result.torch.cuda if result.torch else None
    wheels = find_cuda_wheels(places)
    parts = cuda_home.choose_parts(wheels, torch_cuda)
    there = _ours(cuda_home_tree.look(result.path))
    if isinstance(parts, Finding):
        if state == PRESENT:
            raise EngineError(parts.id, refusal(parts), finding=parts.as_dict())
        # A tree that was made before the wheels changed is whole still, and servers run with it.
        result.home = result.path if there.record else None
        result.findings.append(parts)
        return result

    driver_library = cuda_home_tree.read_driver_library()
    tree = cuda_home.plan(parts, cuda_home_tree.read_roots(wheels, parts), driver_library, torch_cuda)
    result.tree, result.home, result.notes = tree, result.path, list(tree.notes)
    differing = _differing(tree, there)
    removed = cuda_home_tree.removable(there.leftovers)
    result.before = _state(there, differing)
    result.after = {"path": result.path, **cuda_home.described(tree)}
    result.changed = bool(differing or removed)
    if not result.changed:
        result.before = result.after
    elif not check_mode:
        with cuda_home_tree.locked(os.path.dirname(result.path)):
            # Another run may have done it meanwhile.
            there = _ours(cuda_home_tree.look(result.path))
            if _differing(tree, there):
                cuda_home_tree.build(tree, result.path)
            cuda_home_tree.sweep(cuda_home_tree.removable(cuda_home_tree.look(result.path).leftovers))
    return result


def _absent(result: Change, check_mode: bool) -> Change:
    there = _ours(cuda_home_tree.look(result.path))
    users = cuda_home_tree.processes_with(result.path) if there.real else []
    if users:
        named = ", ".join(str(process) for process in users[:5])
        result.notes.append(
            f"{result.path} is not needed any more and stays: {len(users)} processes run with it (PID {named}) and "
            "would find no compiler for their next kernel. It is removed by the first run after their restart"
        )
        return result
    directories = [*there.leftovers, *([there.real] if there.real else [])]
    removed = [path for path in cuda_home_tree.removable(directories) if os.path.lexists(path)]
    result.changed = bool(there.real or removed)
    result.before = _state(there, [])
    result.after = {"path": None}
    if result.changed and not check_mode:
        with cuda_home_tree.locked(os.path.dirname(result.path)):
            cuda_home_tree.remove(result.path)
            cuda_home_tree.sweep(cuda_home_tree.removable(cuda_home_tree.look(result.path).leftovers))
    return result


def _ours(there: Present) -> Present:
    if there.foreign:
        raise EngineError(
            "cuda_home.foreign",
            f"{there.path} is {there.foreign} that was not made by this module, so it is left alone. Choose another "
            "path, or take it away",
        )
    return there


def _differing(tree: Tree, there: Present) -> list[str]:
    if not there.real:
        return [f"{there.path}: missing"]
    differing = cuda_home.deviations(tree, cuda_home_tree.signatures(there.real))
    if not differing and (there.record or {}) != cuda_home.described(tree):
        differing = [f"{cuda_home_tree.RECORD}: differs"]
    return differing


def _state(there: Present, differing: Sequence[str]) -> dict[str, Any]:
    if not there.real:
        state: dict[str, Any] = {"path": None}
    else:
        state = {"path": there.path, **(there.record or {"record": "missing"})}
    if there.real and differing:
        state["differs"] = [*differing[:_SHOWN_DEVIATIONS]]
        if len(differing) > _SHOWN_DEVIATIONS:
            state["differs"].append(f"and {len(differing) - _SHOWN_DEVIATIONS} more")
    if there.leftovers:
        state["left_behind"] = list(there.leftovers)
    return state
