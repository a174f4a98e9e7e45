# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The report of a preflight: what counts, what is shown, and what a machine reads."""

from __future__ import annotations

import datetime
import json
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.serving.sglang.plugins.module_utils.checks import ignore_list, preflight_report
from ansible_collections.serving.sglang.plugins.module_utils.checks.outcome import outcome_of

TODAY = datetime.date(2026, 11, 30)
IDS = ("cuda.nvcc_missing", "host.swap", "cache.owner", "preflight.host_unreachable")


def finding(severity: str, name: str = "cuda.nvcc_missing", **more: Any) -> dict[str, Any]:
    said = {"summary": f"{name} was found", "evidence": "/usr/local/cuda: missing", "fix": "apt-get install x"}
    return {"id": name, "severity": severity, "area": "toolchain", **said, **more}


def looked_at(*findings: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"findings": list(findings), "elapsed_s": {"toolchain": 0.5, "host": 1.25}, **more}


def entry(name: str = "cuda.nvcc_missing", until: Any = "2026-12-31", **more: Any) -> dict[str, Any]:
    return {"id": name, "reason": "the image brings its own", "until": until, **more}


def made(results: dict[str, Any], entries: list[dict[str, Any]] | None = None, **options: Any) -> dict[str, Any]:
    ignores, problems = ignore_list.read_ignores(entries or [], IDS)
    assert not problems
    return preflight_report.make(results, dict.fromkeys(results, ignores), TODAY, **options)


@pytest.mark.parametrize(
    ("severities", "outcome", "strict_outcome"),
    [
        ([], "clean", "clean"),
        (["ok"], "clean", "clean"),
        (["ok", "warning"], "clean", "differs"),
        (["ok", "unknown"], "unknown", "unknown"),
        (["warning", "unknown"], "unknown", "differs"),
        (["error", "unknown", "warning"], "differs", "differs"),
        (["fatal"], "unknown", "unknown"),
    ],
)
def test_the_outcome(severities: list[str], outcome: str, strict_outcome: str) -> None:
    findings = [finding(severity) for severity in severities]
    assert outcome_of(findings) == outcome
    assert outcome_of(findings, strict=True) == strict_outcome


@given(st.lists(st.sampled_from(["ok", "warning", "error", "unknown", "", "odd"])), st.booleans())
def test_clean_says_that_all_was_read_and_nothing_is_wrong(severities: list[str], strict: bool) -> None:
    outcome = outcome_of([finding(severity) for severity in severities], strict)
    allowed = {"ok"} if strict else {"ok", "warning"}
    assert (outcome == "clean") == (set(severities) <= allowed)


# --- hosts that were not looked at ----------------------------------------------------------------------------------


def test_an_unreachable_host_is_unknown() -> None:
    report = made({"h1": looked_at(finding("ok")), "h2": {"unreachable": True, "msg": "No route to host"}})
    assert report["outcome"] == "unknown"
    assert report["hosts"]["h1"]["outcome"] == "clean"
    assert report["hosts"]["h2"]["state"] == "unreachable"
    assert report["counts"] == {
        "hosts": 2,
        "unreachable": 1,
        "error": 0,
        "unknown": 1,
        "warning": 0,
        "ok": 1,
        "ignored": 0,
    }
    assert "1 could not be reached" in preflight_report.summary(report)
    assert "No route to host" in "\n".join(preflight_report.lines(report))


@pytest.mark.parametrize(
    "result",
    [
        {"failed": True, "msg": "/usr/bin/python3: not found"},
        {"failed": True, "msg": "x", "findings": [finding("ok")]},
        {},
        {"findings": []},
        {"findings": "garbled"},
        {"findings": None},
        {"skipped": True},
    ],
    ids=str,
)
def test_a_host_without_a_result_is_no_clean_host(result: dict[str, Any]) -> None:
    report = made({"h1": result})
    (lost,) = report["hosts"]["h1"]["findings"]
    assert (report["outcome"], report["hosts"]["h1"]["state"]) == ("unknown", "failed")
    assert (lost["id"], lost["severity"]) == ("preflight.host_not_read", "unknown")
    assert result.get("msg", "no result came back") in lost["evidence"]


# --- the ignore list ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("until", ["2026-11-30", datetime.date(2026, 11, 30), datetime.datetime(2027, 1, 1, 3, 4)])
def test_an_ignored_finding_is_shown_and_does_not_count(until: Any) -> None:
    report = made({"h1": looked_at(finding("error"))}, [entry(until=until)])
    assert report["outcome"] == "clean"
    assert report["counts"]["ignored"] == 1
    text = "\n".join(preflight_report.lines(report))
    assert "Ignored:" in text
    assert "the image brings its own" in text
    assert "fix:" not in text


def test_an_expired_entry_counts_again_and_says_so() -> None:
    report = made({"h1": looked_at(finding("error"))}, [entry(until="2026-11-29")])
    assert report["outcome"] == "differs"
    assert "ended on 2026-11-29 (the image brings its own): it counts again" in "\n".join(
        preflight_report.lines(report)
    )
    assert report["unused_ignores"] == []


def test_an_entry_that_holds_wins_over_one_that_expired() -> None:
    report = made({"h1": looked_at(finding("error"))}, [entry(until="2026-01-01"), entry(until="2027-01-01")])
    assert report["outcome"] == "clean"


@pytest.mark.parametrize(
    ("where", "ignored"),
    [
        ({}, {"h1/a", "h1/b", "h2/a"}),
        ({"host": "h1"}, {"h1/a", "h1/b"}),
        ({"instance": "a"}, {"h1/a", "h2/a"}),
        ({"host": "h2", "instance": "a"}, {"h2/a"}),
        ({"host": "h3"}, set()),
    ],
)
def test_an_entry_holds_where_it_says(where: dict[str, str], ignored: set[str]) -> None:
    results = {
        "h1": looked_at(finding("error", instance="a"), finding("error", instance="b"), finding("error", "host.swap")),
        "h2": looked_at(finding("error", instance="a")),
    }
    report = made(results, [entry(**where)])
    found = {
        f"{host}/{one['instance']}"
        for host, one_host in report["hosts"].items()
        for one in one_host["findings"]
        if one["ignored"]
    }
    assert found == ignored


def test_an_entry_that_met_nothing_is_reported() -> None:
    report = made({"h1": looked_at(finding("ok"))}, [entry(), entry("host.swap", instance="a")])
    assert [one["id"] for one in report["unused_ignores"]] == ["cuda.nvcc_missing", "host.swap"]
    assert "met nothing (remove them)" in "\n".join(preflight_report.lines(report))


@pytest.mark.parametrize("lost", [{"unreachable": True}, {"failed": True}, {}])
def test_an_entry_is_not_called_unused_while_a_host_of_it_was_not_looked_at(lost: dict[str, Any]) -> None:
    assert made({"h1": looked_at(finding("ok")), "h2": lost}, [entry()])["unused_ignores"] == []


@pytest.mark.parametrize("name", ["preflight.not_looked_at", "declaration.refused"])
def test_an_entry_is_not_called_unused_where_a_part_was_not_looked_at(name: str) -> None:
    assert made({"h1": looked_at(finding("ok"), finding("unknown", name))}, [entry()])["unused_ignores"] == []
    assert made({"h1": looked_at(finding("ok"), finding("ok", name))}, [entry()])["unused_ignores"]


def test_what_another_release_does_not_find_is_not_called_unused() -> None:
    assert made({"h1": looked_at(finding("ok"))}, [entry()], upgrade_to="0.5.23")["unused_ignores"] == []


def test_an_entry_for_a_host_outside_of_the_run_is_not_called_unused() -> None:
    assert made({"h1": looked_at(finding("ok"))}, [entry(host="h9")])["unused_ignores"] == []


def test_the_lists_of_two_hosts_are_their_own() -> None:
    ignores = {"h1": ignore_list.read_ignores([entry()], IDS)[0], "h2": []}
    results = {"h1": looked_at(finding("error")), "h2": looked_at(finding("error"))}
    report = preflight_report.make(results, ignores, TODAY)
    assert [report["hosts"][host]["outcome"] for host in ("h1", "h2")] == ["clean", "differs"]


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        ([{"id": "cuda.nvcc_missing", "until": "2026-12-31"}], "reason is missing"),
        ([{"id": "cuda.nvcc_missing", "reason": " ", "until": "2026-12-31"}], "reason is missing"),
        ([{"id": "cuda.nvcc_missing", "reason": "x"}], "until is missing: the last day on which it is ignored"),
        ([entry(until="31.12.2026")], "until is '31.12.2026', expected a day as 2027-01-31"),
        ([entry(until=True)], "until is 'True', expected a day"),
        ([entry("cuda.nvcc_mising")], "there is no finding 'cuda.nvcc_mising'; is cuda.nvcc_missing meant?"),
        ([entry("zz")], "there is no finding 'zz'; docs/findings.md lists them all"),
        ([{"reason": "x", "until": "2026-12-31"}], "id is missing"),
        ([entry("preflight.host_unreachable")], "cannot be ignored; leave a host that is switched off out of the run"),
        ([{**entry(), "untill": "2027"}], "'untill' is no key of an entry; is until meant?"),
        (["cuda.nvcc_missing"], "sglang_preflight_ignore[0] is a text; an entry has id, reason and until"),
        ("cuda.nvcc_missing", "sglang_preflight_ignore is a text; it is a list"),
        ({"id": "x"}, "sglang_preflight_ignore is a mapping; it is a list"),
    ],
)
def test_an_entry_that_hides_what_nobody_accepted_is_refused(entries: Any, said: str) -> None:
    ignores, problems = ignore_list.read_ignores(entries, IDS)
    assert ignores == []
    assert said in "\n".join(problems)


def test_one_wrong_entry_does_not_hide_another() -> None:
    ignores, problems = ignore_list.read_ignores([entry("a.b"), entry(), {}], IDS)
    assert len(ignores) == 1
    assert any("[0] (a.b)" in problem for problem in problems)
    assert any(problem.startswith("sglang_preflight_ignore[2]: id is missing") for problem in problems)


# --- what people read -----------------------------------------------------------------------------------------------


def test_the_same_finding_of_many_hosts_is_printed_once() -> None:
    report = made({f"h{number}": looked_at(finding("error")) for number in range(1, 21)})
    text = "\n".join(preflight_report.lines(report))
    assert text.count("cuda.nvcc_missing was found") == 1
    assert "h12 and 8 more" in text
    assert text.endswith("differs: 20 errors, 0 unknown, 0 warnings on 20 hosts")


def test_the_worst_is_printed_first_and_what_is_ok_only_counted() -> None:
    findings = [finding(severity, f"host.{severity}") for severity in ("ok", "warning", "error", "unknown")]
    text = preflight_report.lines(made({"h1": looked_at(*findings)}))
    named = [line.split()[-1] for line in text if line.startswith(("error ", "warning ", "unknown "))]
    assert named == ["host.error", "host.unknown", "host.warning"]
    assert "host.ok" not in "\n".join(text)


def test_what_could_not_be_told_for_one_reason_stands_together() -> None:
    why = "nvidia-smi did not end within 2 s"
    names = ("driver.too_old", "cards.lost", "cards.mig")
    findings = [finding("unknown", name, evidence=why, summary=f"could not tell: {name}") for name in names]
    text = "\n".join(preflight_report.lines(made({"h1": looked_at(*findings), "h2": looked_at(*findings)})))
    assert text.count(why) == 1
    assert "unknown  h1, h2  cards.lost, cards.mig, driver.too_old" in text
    assert "could not tell: cards.mig" in text
    assert text.endswith("unknown: 0 errors, 6 unknown, 0 warnings on 2 hosts")


def test_a_fix_of_several_lines_can_be_pasted() -> None:
    text = preflight_report.lines(made({"h1": looked_at(finding("error", fix='echo "a\\b"\nreboot'))}))
    assert '  fix:  echo "a\\b"' in text
    assert "        reboot" in text


def test_what_an_upgrade_changes_is_printed_once_for_hosts_alike() -> None:
    change = {"main": {"from": "0.5.22", "to": "0.5.23", "lines": ["max-x: default 1 -> 2"]}}
    other = {"main": {"from": "0.5.22", "to": "0.5.23", "lines": []}}
    results = {"h1": looked_at(finding("ok"), upgrade=change), "h2": looked_at(finding("ok"), upgrade=change)}
    results["h3"] = looked_at(finding("ok"), upgrade=other)
    text = "\n".join(preflight_report.lines(made(results, upgrade_to="0.5.23")))
    assert "h1 (main), h2 (main): what changes from 0.5.22 to 0.5.23 for the arguments in use\n  max-x" in text
    assert "h3 (main): what changes from 0.5.22 to 0.5.23 for the arguments in use\n  nothing" in text
    assert "what changes" not in "\n".join(preflight_report.lines(made(results)))


# --- what machines read ---------------------------------------------------------------------------------------------


def test_junit_has_a_suite_for_each_host_and_a_case_for_each_finding() -> None:
    findings = [finding(severity, f"host.{severity}") for severity in ("ok", "warning", "error", "unknown")]
    findings.append(finding("error", instance="main"))
    results = {"h1": looked_at(*findings), "h2": {"unreachable": True, "msg": "gone"}}
    root = ElementTree.fromstring(preflight_report.junit(made(results, [entry()])))
    first, second = root.findall("testsuite")
    assert {name: first.get(name) for name in ("name", "tests", "failures", "errors", "skipped")} == {
        "name": "h1",
        "tests": "5",
        "failures": "1",
        "errors": "1",
        "skipped": "1",
    }
    assert [second.get("errors"), second.get("name")] == ["1", "h2"]
    cases = {case.get("name"): [child.tag for child in case] for case in first}
    assert cases == {
        "host.ok": [],
        "host.warning": ["system-out"],
        "host.error": ["failure"],
        "host.unknown": ["error"],
        "cuda.nvcc_missing (main)": ["skipped"],
    }
    assert first[0].get("classname") == "h1.toolchain"


def test_warnings_are_failures_where_they_count() -> None:
    root = ElementTree.fromstring(preflight_report.junit(made({"h1": looked_at(finding("warning"))}, strict=True)))
    assert root[0].get("failures") == "1"


@given(st.text(), st.text())
def test_junit_is_xml_whatever_was_read(host: str, evidence: str) -> None:
    report = made({host: looked_at(finding("error", evidence=evidence, instance=evidence))})
    root = ElementTree.fromstring(preflight_report.junit(report).encode())
    assert root[0].get("failures") == "1"


def test_the_report_is_plain_data() -> None:
    report = made({"h1": looked_at(finding("error"))}, [entry(until=datetime.date(2027, 1, 1))])
    assert json.loads(json.dumps(report)) == report
    assert report["schema"] == 1


def test_nothing_of_a_host_steers_the_terminal() -> None:
    bad = "h\x1b[2J\nclean\x9b\u202e"
    finding = {"id": "ports.taken", "severity": "error", "summary": bad, "evidence": bad, "fix": bad, "instance": bad}
    report = preflight_report.make({bad: {"findings": [finding]}}, {}, datetime.date(2026, 1, 1))
    for text in (*preflight_report.lines(report), preflight_report.junit(report), preflight_report.as_json(report)):
        assert not set("\x1b\x9b\u202e") & set(text)
    assert all("\n" not in line for line in preflight_report.lines(report))
    assert bad in json.loads(preflight_report.as_json(report))["hosts"]
