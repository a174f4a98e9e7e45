# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""From what is wanted of a CUDA_HOME to what is there: reads, decides, and changes what differs."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from . import cuda_home, cuda_home_record, cuda_home_tree
from .checks.cuda_wheels import find_cuda_wheels
from .cuda_home import Torch, Tree
from .cuda_home_record import Damage
from .cuda_home_tree import Present
from .errors import EngineError
from .finding import Finding

AUTO = "auto"
PRESENT = "present"
ABSENT = "absent"
# Of a tree that differs in hundreds of files the first ones say enough.
_SHOWN_DEVIATIONS = 20
_SHOWN_DAMAGES = 5


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
    environment = _absolute("environment", str(params["environment"]))
    path = _absolute("path", str(params.get("path") or os.path.join(environment, cuda_home.DIRECTORY)))
    if params["state"] == ABSENT:
        return _absent(Change(path, reason="declared absent"), check_mode)

    declared = params.get("wheels")
    for place in declared or ():
        if not os.path.isdir(_absolute("wheels", str(place))):
            raise EngineError(
                "cuda_home.wheels",
                f"wheels names {place}, which is {'no directory' if os.path.lexists(place) else 'not there'}. Name "
                "directories that `pip install --target` has filled, or leave wheels out",
            )
    sites = cuda_home_tree.read_site_packages(os.path.join(environment, "bin", "python"))
    torch = cuda_home_tree.read_torch(sites)
    result = Change(path, torch=torch, reason="declared present")
    if params["state"] == AUTO:
        decision = cuda_home.decide(torch, cuda_home_tree.read_toolkit(str(params["toolkit"])))
        result.reason = decision.reason
        if not decision.wanted:
            return _absent(result, check_mode)
    own = [os.path.join(environment, cuda_home.WHEELS_DIRECTORY)] if declared is None else declared
    return _present(result, environment, [*own, *sites], params["state"], check_mode)


def refusal(finding: Finding) -> str:
    """A finding as one message."""
    return f"{finding.summary}. Seen: {finding.evidence}. Next step: {finding.fix}."


def _absolute(option: str, path: str) -> str:
    """A path as an option has it, without the slash at its end."""
    if not path.startswith("/") or not path.strip("/"):
        raise EngineError(
            f"cuda_home.{option}",
            f"{option} is {path!r}. Give the absolute path of a directory of its own, as /opt/sglang/0.5.22",
        )
    return path.rstrip("/")


def _present(result: Change, environment: str, places: Sequence[str], state: str, check_mode: bool) -> Change:
    torch_cuda = result.torch.cuda if result.torch else None
    # A header that says nothing is found by its RECORD, with what to do about it.
    wheels = find_cuda_wheels(places, by_headers=False)
    parts = cuda_home.choose_parts(wheels, torch_cuda)
    folder = os.path.dirname(result.path)
    if not os.path.isdir(folder):
        raise EngineError(
            "cuda_home.path",
            f"path is {result.path}, and there is no directory {folder} to make it in. Make that one first: "
            f"`install -d {shlex.quote(folder)}`",
        )
    there = _ours(cuda_home_tree.look(result.path))
    if isinstance(parts, Finding):
        # A tree that was made before the wheels changed is whole still, and servers run with it.
        return _refused(result, parts, state, result.path if there.record else None)

    driver_library = cuda_home_tree.read_driver_library()
    roots = cuda_home_tree.read_roots(wheels, parts)
    tree = cuda_home.plan(parts, roots, driver_library, torch_cuda)
    damages = cuda_home_record.damages(tree, list(roots))
    if damages:
        # What was written into a file of a wheel is in the tree too; what was replaced or removed is not.
        is_whole = there.record and not any(damage.is_in(_in_tree(there.real, damage)) for damage in damages)
        return _refused(result, damaged(damages, environment), state, result.path if is_whole else None)
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


def damaged(damages: Sequence[Damage], environment: str) -> Finding:
    """What is wrong with the wheels, and how to install them again."""
    named = "; ".join(f"{damage.path} {damage.problem}" for damage in damages[:_SHOWN_DAMAGES])
    more = f"; and {len(damages) - _SHOWN_DAMAGES} more" if len(damages) > _SHOWN_DAMAGES else ""
    wheels = sorted({damage.requirement for damage in damages})
    sites = sorted({damage.site for damage in damages})
    first = damages[0]
    return cuda_home.WHEELS_DAMAGED.found(
        f"{', '.join(wheels)} not as installed: {first.relative} {first.problem}"
        + (f", and {len(damages) - 1} other files" if len(damages) > 1 else ""),
        f"{named}{more}; compared with RECORD in {', '.join(sites)}",
        _install_again(wheels, sites, environment),
    )


def _install_again(wheels: Sequence[str], sites: Sequence[str], environment: str) -> str:
    beside = os.path.join(environment, cuda_home.WHEELS_DIRECTORY)
    if all(site.startswith(f"{environment}/lib") for site in sites):
        words = [f"{environment}/bin/python", "-m", "pip", "install", "--force-reinstall", "--no-deps", *wheels]
        return f"`{shlex.join(words)}`"
    if list(sites) == [beside]:
        # pip replaces all of `nvidia` in a directory that it is given, with the other wheels in it.
        return f"`rm -r {shlex.quote(beside)}`, then deploy, which fills it again"
    # Of a directory that somebody else filled nobody here knows how.
    return f"install {', '.join(wheels)} again in {', '.join(sites)}, in the way in which they came there"


def _in_tree(real: str, damage: Damage) -> str:
    folder, _slash, name = damage.relative.partition("/")
    return os.path.join(real, "lib64" if folder == "lib" else folder, name)


def _refused(result: Change, finding: Finding, state: str, home: str | None) -> Change:
    if state == PRESENT:
        raise EngineError(finding.id, refusal(finding), finding=finding.as_dict())
    result.home = home
    result.findings.append(finding)
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
