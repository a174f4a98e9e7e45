# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a person on call reads when a rollout has stopped."""

from __future__ import annotations

from ansible_collections.serving.sglang.plugins.module_utils import rollout_failure as failure

MEMBERS = [{"replica": "r1", "host": "h1"}, {"replica": "r2", "host": "h2"}]


def describe(result, task="Begin to drain and stop every server of the wave"):
    return failure.describe(result, task, MEMBERS, "/srv/ledger/R.jsonl")


def test_replica_host_step_what_was_seen_and_what_to_do():
    bad = {
        "failed": True,
        "failed_at": failure.at("r2", "h2", "drain"),
        "kind": "drain_timeout",
        "msg": "Instance main did not drain within 5 s: 1 running and 0 waiting.",
    }
    text = describe({"failed": True, "msg": "One or more items failed", "results": [{"changed": True}, bad]})
    assert text == (
        "The rollout stopped at r2 on h2, at the step drain: Instance main did not drain within 5 s: 1 running and "
        "0 waiting. A rollout takes both from sglang_rollout_drain_timeout_s and sglang_rollout_drain_on_timeout. "
        "The other replicas go on serving. Once the cause is removed, run the same command again: it continues from "
        "here. Ledger: /srv/ledger/R.jsonl"
    )


def test_every_failure_of_a_wave_is_told_once():
    first = {"failed": True, "failed_at": failure.at("r1", "h1", "start"), "msg": "no"}
    second = {"failed": True, "failed_at": failure.at("r2", "h2", "verify"), "msg": "neither"}
    text = describe({"failed": True, "results": [first, first, second]})
    assert text.startswith(
        "The rollout stopped at r1 on h1, at the step start: no. And at r2 on h2, at the step verify: neither. The "
    )


def test_a_gateway_that_takes_too_long():
    late = {"failed": True, "failed_at": failure.at("r1", "gw", "rejoin"), "kind": "timeout", "msg": "late."}
    assert "r1 on gw, at the step rejoin: late. How long a gateway may take is sglang_rollout_rejoin_timeout_s." in (
        describe(late)
    )


def test_a_task_of_the_operator_is_told_by_its_name():
    text = describe({"failed": True, "msg": "apt is locked"}, task="Install updates")
    assert "stopped at r1 on h1, r2 on h2, at the task 'Install updates': apt is locked. The other" in text


def test_a_result_without_a_message():
    assert "no message." in describe({"failed": True})
    assert "no message." in describe({"results": [{"unreachable": True}, {}]})


def test_what_could_not_be_brought_to_the_hosts():
    members = [*MEMBERS, {"replica": "r3", "host": "h2"}, {"replica": "r4", "host": "h4"}]
    good = {"changed": True}
    assert failure.describe_prefetch({"h1": good, "h2": good, "h4": good, "h3": {}}, members, "L") == ""
    text = failure.describe_prefetch({"h1": good, "h2": {"failed": True, "msg": "no room"}}, members, "L")
    assert text == (
        "The rollout does not begin; no replica was touched. r2, r3 on h2, at the step prefetch: no room. r4 on h4, at "
        "the step prefetch: h4 became unreachable. Run again when it answers. Once the cause is removed, run the same "
        "command again. Ledger: L"
    )


def test_the_step_at_which_a_job_failed():
    steps = [{"step": "drain", "ok": True}, {"step": "stop", "ok": False}]
    assert failure.last_step(steps, "stop") == "stop"
    assert failure.last_step([{"step": "drain", "ok": False}], "stop") == "drain"
    assert failure.last_step(steps[:1], "stop") == "stop"
    assert failure.last_step([], "start") == "start"
