# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a deployment keeps of an instance, and what a rollback puts back."""

from __future__ import annotations

import json
import os

import pytest
from ansible.plugins.filter.core import to_nice_json
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.serving.sglang.plugins.module_utils import desired_state, served_states
from ansible_collections.serving.sglang.plugins.module_utils import previous_state as previous
from ansible_collections.serving.sglang.plugins.module_utils.errors import EngineError

NOW = "2026-11-30T06:00:00Z"
UNIT = "/etc/systemd/system/sglang-main.service"
SLICE = "/etc/systemd/system/sglang-main.slice"
STATE = "/etc/sglang/main.json"


def state(version="0.5.22", **changes):
    return {
        "schema": 1,
        "instance": "main",
        "unit": "sglang-main.service",
        "slice": "sglang-main.slice",
        "version": version,
        "args": {"port": 30000},
        "credentials": None,
        "container": None,
        **changes,
    }


A, B, C = state("0.5.21"), state("0.5.22"), state("0.5.23")


def text(desired):
    return previous.render_desired(desired)


def files(desired):
    name = desired["version"]
    return {STATE: text(desired), UNIT: f"[Service]\n# {name}\n", SLICE: "[Slice]\n"}


def kept(desired, by=previous.DEPLOYMENT, at="2026-11-29T00:00:00Z"):
    return previous.Kept(at, desired, files(desired), by)


def found(disk, running=None, before=None, served=(), **changes):
    return previous.Found(
        "main",
        None if disk is None else text(disk),
        None if running is None else text(running),
        before,
        {} if disk is None else files(disk),
        None if served is None else tuple(served_states.digest(text(one)) for one in served),
        **changes,
    )


# The disk, what was started last, what is kept, what served; what is about to be written; what is kept then.
KEEPING = {
    "a new instance": (found(None), A, None),
    "the same again": (found(A, A, served=[A]), A, None),
    "what serves is kept": (found(A, A, served=[A]), B, A),
    "what served is kept although it is stopped and the host was restarted": (found(A, None, served=[A]), B, A),
    "a second deployment without a rollout keeps what runs": (found(B, A, kept(A), served=[A]), C, None),
    "what never became ready is not kept": (found(B, B, kept(A), served=[A]), C, None),
    "what serves since a reboot is kept, though nobody noted it": (
        found(B, B, kept(A), served=[A], serves_now=True),
        C,
        B,
    ),
    "what never ran is not kept": (found(A, None), B, None),
    "an older release noted nothing: what was started last counts": (found(A, A, served=None), B, A),
    "an older release noted nothing, and a restart is pending": (found(B, A, kept(A), served=None), C, None),
    "back to what was kept, after a rollback that nobody rolled out": (
        found(A, B, kept(B, previous.ROLLBACK), served=[A, B]),
        B,
        A,
    ),
    "what is kept already": (found(A, A, kept(A), served=[A]), B, None),
}


@pytest.mark.parametrize("case", KEEPING)
def test_what_a_deployment_keeps(case):
    host, new, expected = KEEPING[case]
    plan = previous.keeping(host, new, NOW)
    if expected is None:
        assert plan.write is None, plan.why
    else:
        assert plan.write == previous.Kept(NOW, expected, files(expected))
    assert plan.warning == ""


def test_what_runs_and_was_not_kept_is_said():
    plan = previous.keeping(found(B, A, None, served=[A]), C, NOW)
    assert plan.write is None
    assert "nothing to come back to" in plan.warning


def test_a_unit_that_is_missing_is_said():
    host = previous.Found("main", text(A), text(A), None, {STATE: text(A)}, (served_states.digest(text(A)),))
    plan = previous.keeping(host, B, NOW)
    assert plan.write is None
    assert "a file of its unit is missing" in plan.warning


def test_what_a_rollback_put_aside_is_a_way_back_again_once_something_else_is_deployed():
    plan = previous.keeping(found(A, B, kept(B, previous.ROLLBACK), served=[A, B]), C, NOW)
    assert plan.write == kept(B)


def test_a_rollback_swaps_and_is_done_once():
    plan = previous.restoring(found(B, B, kept(A)), False, NOW)
    assert plan.write == files(A)
    assert plan.remove == ()
    assert plan.aside == previous.Kept(NOW, B, files(B), previous.ROLLBACK)
    after = found(A, B, plan.aside)
    assert previous.restoring(after, False, NOW).aside is None
    forward = previous.restoring(after, True, NOW)
    assert forward.write == files(B)
    assert forward.aside == previous.Kept(NOW, A, files(A), previous.UNDO)
    assert previous.restoring(found(B, A, forward.aside), True, NOW).aside is None


def test_a_unit_of_another_runtime_is_removed():
    podman = {"engine": "podman", "image": "r/s:v1@sha256:0", "run_image": "r/s@sha256:0"}
    new = state(container=podman)
    quadlet = "/etc/containers/systemd/sglang-main.container"
    host = previous.Found("main", text(new), text(new), kept(A), {STATE: text(new), quadlet: "q", SLICE: "[Slice]\n"})
    plan = previous.restoring(host, False, NOW)
    assert plan.remove == (quadlet,)
    assert plan.write == files(A)


@pytest.mark.parametrize(
    ("host", "kind", "words"),
    [
        (found(None), "no_instance", "deploy it first"),
        (found(B, B), "no_previous", "main.previous.json does not exist"),
        (found(B, B, kept(B)), "no_previous", "is the one on disk"),
        (
            found(state("0.5.22", credentials={"config": "/c", "hf_token": None, "fingerprint": "1"}), B, kept(A)),
            "credentials",
            r"then: none; today: config\), and secrets are not kept. Deploy the old declaration",
        ),
    ],
)
def test_what_cannot_come_back_is_refused_with_the_way_out(host, kind, words):
    with pytest.raises(EngineError, match=words) as error:
        previous.restoring(host, False, NOW)
    assert error.value.kind == kind


def test_the_keys_of_today_stay_and_so_does_their_fingerprint():
    def secret(version, mark):
        return state(version, credentials={"config": "/c", "hf_token": None, "fingerprint": mark})

    plan = previous.restoring(found(secret("0.5.23", "new"), None, kept(secret("0.5.22", "old"))), False, NOW)
    assert json.loads(plan.write[STATE]) == secret("0.5.22", "new") == plan.desired
    same = previous.restoring(found(secret("0.5.23", "old"), None, kept(secret("0.5.22", "old"))), False, NOW)
    assert same.write == files(secret("0.5.22", "old"))


def test_a_state_is_written_as_the_role_writes_it():
    desired = state(environment={"Ä": "ß\n", "B": "1"}, memory=None, numbers=[1, 2.5, {}], empty={})
    assert previous.render_desired(desired) == to_nice_json(desired, indent=2) + "\n"


@pytest.mark.parametrize(
    "broken",
    [
        "",
        "[]",
        "{}",
        '{"schema": 1, "kept_at": "x", "desired": {"instance": "main"}, "files": {}}',
        json.dumps({"schema": 1, "kept_at": "x", "desired": A, "files": files(B)}),
        json.dumps({"schema": 2, "kept_at": "x", "desired": A, "files": files(A)}),
    ],
)
def test_a_kept_state_that_is_not_whole_is_refused(broken):
    with pytest.raises(EngineError, match=r"/etc/sglang/main\.previous\.json"):
        previous.parse(broken, "/etc/sglang/main.previous.json")


def test_what_served_is_remembered_the_latest_last():
    states = []
    for desired in (A, B, A):
        states = served_states.with_one_more(states, text(desired), NOW)
    assert [one["sha256"] for one in states] == [served_states.digest(text(one)) for one in (B, A)]
    for number in range(20):
        states = served_states.with_one_more(states, str(number), NOW)
    assert len(states) == served_states.KEPT
    assert states[-1]["sha256"] == served_states.digest("19")


# --- with files -----------------------------------------------------------------------------------------------------


class Machine:
    """The files of an instance, as the role writes them and a start copies them."""

    def __init__(self, root):
        self.root = root
        self.state = desired_state.path_of("main")

    def deploy(self, desired):
        host = previous.read("main")
        if host.disk is None:
            served_states.begin("main")
        previous.keep("main", previous.keeping(host, desired, previous.now_text()).write)
        self.files(desired)

    def files(self, desired):
        for path, content in {self.state: text(desired), **self.units(desired)}.items():
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w", encoding="utf-8") as handle:
                handle.write(content)

    def units(self, desired):
        unit, slice_ = desired_state.unit_files(desired)
        told = json.dumps([desired["version"], desired["args"]], sort_keys=True)
        return {unit: f"[Service]\n# {told}\n", slice_: "[Slice]\n"}

    def start(self, serves=True):
        path = desired_state.running_path_of("main")
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(self.state, encoding="utf-8") as source, open(path, "w", encoding="utf-8") as handle:
            handle.write(source.read())
        if serves:
            served_states.note_running("main")

    def restore(self, undo=False):
        ended = previous.cut_off("main")
        if ended is not None:
            previous.keep("main", ended)
        plan = previous.restoring(previous.read("main"), undo, previous.now_text())
        previous.write("main", plan)
        return plan

    def seen(self):
        texts = {}
        for folder, _folders, names in os.walk(self.root):
            for name in names:
                path = os.path.join(folder, name)
                apart = "previous" in name or any(part in folder for part in ("/served", "/run/", "/wants"))
                if not apart:
                    with open(path, encoding="utf-8") as handle:
                        texts[path] = handle.read()
        return texts


@pytest.fixture
def machine(tmp_path, monkeypatch):
    return at(tmp_path, monkeypatch.setattr)


def at(root, setattr_):
    setattr_(desired_state, "DESIRED_DIR", str(root / "etc"))
    setattr_(desired_state, "RUNNING_DIR", str(root / "run" / "running"))
    setattr_(desired_state, "UNIT_DIR", str(root / "units"))
    setattr_(desired_state, "QUADLET_DIR", str(root / "quadlets"))
    setattr_(previous, "ENABLED_DIR", str(root / "units" / "wants"))
    setattr_(served_states, "DIRECTORY", str(root / "served"))
    return Machine(str(root))


def test_keep_and_restore_on_disk(machine):
    machine.deploy(A)
    machine.start()
    before = machine.seen()
    machine.deploy(B)
    assert oct(os.stat(previous.path_of("main")).st_mode & 0o777) == "0o644"
    machine.deploy(C)
    after = machine.seen()
    machine.restore()
    # The link that has the unit started at boot is a file of the first deployment's playbook.
    restored = {path: content for path, content in machine.seen().items() if "/wants/" not in path}
    assert restored == before
    assert previous.read_kept("main").by == previous.ROLLBACK
    assert machine.restore().aside is None
    machine.restore(undo=True)
    assert {path: content for path, content in machine.seen().items() if "/wants/" not in path} == after


@pytest.mark.parametrize("rubbish", [b"\xff\xfe{", b"", b"[1]", b'{"schema": 1}', b'{"instance": "other"}'])
@pytest.mark.parametrize("path_of", [desired_state.path_of, desired_state.running_path_of])
def test_rubbish_in_the_place_of_a_state_does_not_stop_a_deployment(machine, path_of, rubbish):
    machine.deploy(A)
    machine.start()
    with open(path_of("main"), "wb") as handle:
        handle.write(rubbish)
    plan = previous.keeping(previous.read("main"), B, NOW)
    assert plan.write is None


def test_a_note_of_what_served_that_is_no_text_is_written_anew(machine):
    machine.deploy(A)
    with open(served_states.path_of("main"), "wb") as handle:
        handle.write(b"\xff")
    assert served_states.read("main") is None
    assert served_states.note("main", text(A))
    assert served_states.read("main") == [served_states.digest(text(A))]
    machine.start(serves=False)
    with open(desired_state.running_path_of("main"), "wb") as handle:
        handle.write(b"\xff")
    assert served_states.note_running("main") is False


def test_a_start_that_failed_does_not_count(machine):
    machine.deploy(A)
    machine.start()
    machine.deploy(B)
    machine.start(serves=False)
    machine.deploy(C)
    assert previous.read_kept("main").desired == A


class Cut(Exception):
    pass


@pytest.mark.parametrize("cut", range(6))
def test_a_rollback_that_is_cut_off_anywhere_is_ended_by_the_next(machine, monkeypatch, cut):
    machine.deploy(A)
    machine.start()
    before = machine.seen()
    machine.deploy(B)
    machine.start()
    newest = machine.seen()
    whole = previous.whole_file.replace
    calls = []

    def cutting(path, *values, **named):
        if len(calls) == cut:
            raise Cut(path)
        calls.append(path)
        whole(path, *values, **named)

    monkeypatch.setattr(previous.whole_file, "replace", cutting)
    if cut < 5:
        with pytest.raises(Cut):
            machine.restore()
    else:
        machine.restore()
    monkeypatch.setattr(previous.whole_file, "replace", whole)
    machine.restore()
    seen = {path: content for path, content in machine.seen().items() if "/wants/" not in path}
    assert seen == before
    assert previous.read_kept("main").by == previous.ROLLBACK
    assert not os.path.exists(previous.put_aside_path("main"))
    machine.restore(undo=True)
    assert {path: content for path, content in machine.seen().items() if "/wants/" not in path} == newest


STATES = st.builds(
    lambda version, port, engine, word: state(
        version,
        args={"port": port, "note": word},
        container=None if engine is None else {"engine": engine, "image": word},
    ),
    st.sampled_from(["0.5.21", "0.5.22", "0.5.23"]),
    st.integers(1, 3),
    st.sampled_from([None, "podman", "docker"]),
    st.text(max_size=5),
)
STEPS = st.lists(st.one_of(STATES, st.sampled_from(["start", "fail", "restore", "undo"])), min_size=1, max_size=12)


@settings(max_examples=25, deadline=None)
@given(STEPS)
def test_whatever_happens_the_way_back_is_to_what_served(tmp_path_factory, steps):
    with pytest.MonkeyPatch.context() as patch:
        machine = at(tmp_path_factory.mktemp("machine"), patch.setattr)
        served, disk = [], None
        for step in steps:
            if isinstance(step, dict):
                machine.deploy(step)
                # The role removes what another runtime left.
                for path in {*map(str, _every_unit(machine))} - set(desired_state.unit_files(step)):
                    os.unlink(path)
                disk = step
            elif disk is None:
                continue
            elif step in ("start", "fail"):
                machine.start(serves=step == "start")
                if step == "start":
                    served.append(disk)
            else:
                before = _own(machine)
                try:
                    plan = machine.restore(undo=step == "undo")
                except EngineError:
                    assert _own(machine) == before
                    continue
                disk = json.loads(_own(machine)[machine.state])
                if plan.aside is not None and step == "restore":
                    assert disk in served
                    assert machine.units(disk).items() <= _own(machine).items()
                    again = _own(machine)
                    machine.restore()
                    assert _own(machine) == again
                    machine.restore(undo=True)
                    assert _own(machine) == before
                    disk = json.loads(before[machine.state])
        kept_now = previous.read_kept("main")
        if kept_now is not None and kept_now.by == previous.DEPLOYMENT:
            assert kept_now.desired in served


def _own(machine):
    return {path: content for path, content in machine.seen().items() if "/wants/" not in path}


def _every_unit(machine):
    return [path for path in _own(machine) if path.endswith((".service", ".container"))]
