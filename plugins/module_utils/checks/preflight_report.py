# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The report of a preflight of many hosts: outcome, ignored findings, text for people, and JUnit for CI. Pure."""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any
from xml.etree import ElementTree

from ..finding import ERROR, OK, UNKNOWN, WARNING
from ..redaction import visible
from ..report import table
from . import ignore_list
from .declaration import REFUSED
from .ignore_list import Ignore
from .outcome import outcome_of
from .preflight_kinds import HOST_NOT_READ, HOST_UNREACHABLE, NOT_LOOKED_AT

SCHEMA = 1
# A finding and the hosts that have the very same.
Group = tuple[Mapping[str, Any], list[str]]
UNREACHABLE = "unreachable"

HEADINGS = ("host", "outcome", "errors", "unknown", "warnings", "ignored", "ok", "seconds")
# The worst first; what is ok is only counted.
_ORDER = (ERROR, UNKNOWN, WARNING)
_COUNTED = (ERROR, UNKNOWN, WARNING, OK)
# Hosts that are named of one finding; the JSON report names all.
_NAMED = 12


def make(
    results: Mapping[str, Mapping[str, Any]],
    ignores: Mapping[str, Sequence[Ignore]],
    today: datetime.date,
    strict: bool = False,
    upgrade_to: str = "",
) -> dict[str, Any]:
    """The report as data. `results` holds what preflight_info returned on each host, or how that failed."""
    hosts: dict[str, dict[str, Any]] = {}
    met: set[Ignore] = set()
    looked_at: set[str] = set()
    for host, result in results.items():
        state, findings = _found(host, result)
        marked, met_here = ignore_list.apply(findings, host, ignores.get(host, ()), today)
        met |= met_here
        if state == "looked_at" and not _in_part(marked):
            looked_at.add(host)
        hosts[host] = {
            "state": state,
            "outcome": outcome_of(marked, strict),
            "counts": _counts(marked),
            "elapsed_s": result.get("elapsed_s") or {},
            "findings": marked,
            "upgrade": result.get("upgrade") or {},
        }
    everything = [finding for entry in hosts.values() for finding in entry["findings"]]
    return {
        "schema": SCHEMA,
        "outcome": outcome_of(everything, strict),
        "strict": strict,
        "upgrade_to": upgrade_to,
        "counts": {
            "hosts": len(hosts),
            UNREACHABLE: sum(entry["state"] == UNREACHABLE for entry in hosts.values()),
            **_counts(everything),
        },
        "hosts": hosts,
        # What another release would not find says nothing about the one that runs.
        "unused_ignores": [] if upgrade_to else [one.as_dict() for one in _unused(ignores, met, looked_at)],
    }


def _found(host: str, result: Mapping[str, Any]) -> tuple[str, Sequence[Mapping[str, Any]]]:
    said = str(result.get("msg") or "no result came back").strip()
    if result.get("unreachable"):
        fix = f"`ansible {host} -m ansible.builtin.ping`; to look at the others without it, add `--limit '!{host}'`"
        lost = HOST_UNREACHABLE.found("the host could not be reached", said, fix)
        return UNREACHABLE, [{**lost.as_dict(), "area": "preflight"}]
    findings = result.get("findings")
    if result.get("failed") or not isinstance(findings, Sequence) or isinstance(findings, str) or not findings:
        lost = HOST_NOT_READ.found("the host was reached and could not be looked at", said)
        return "failed", [{**lost.as_dict(), "area": "preflight"}]
    return "looked_at", findings


def _in_part(findings: Sequence[Mapping[str, Any]]) -> bool:
    """Whether parts of a host were not looked at, or declarations that others rest on were not understood."""
    in_the_way = (NOT_LOOKED_AT.id, REFUSED.id)
    return any(one.get("id") in in_the_way and one.get("severity") != OK for one in findings)


def _counts(findings: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    counts = dict.fromkeys(_COUNTED, 0)
    ignored = 0
    for one in findings:
        if one.get("ignored"):
            ignored += 1
        else:
            severity = str(one.get("severity"))
            counts[severity if severity in counts else UNKNOWN] += 1
    return {**counts, "ignored": ignored}


def _unused(
    ignores: Mapping[str, Sequence[Ignore]], met: Collection[Ignore], looked_at: Collection[str]
) -> list[Ignore]:
    """Entries that met nothing, although every host that they are for was looked at."""
    unused: dict[Ignore, None] = {}
    for entry in dict.fromkeys(one for entries in ignores.values() for one in entries):
        meant = [host for host, entries in ignores.items() if entry in entries and entry.host in ("", host)]
        if meant and entry not in met and all(host in looked_at for host in meant):
            unused[entry] = None
    return list(unused)


def summary(report: Mapping[str, Any]) -> str:
    """The outcome in one sentence."""
    counts = report["counts"]
    numbers = _numbers(counts)
    lost = f"; {counts[UNREACHABLE]} could not be reached" if counts[UNREACHABLE] else ""
    return f"{report['outcome']}: {numbers} on {_plural(counts['hosts'], 'host')}{lost}"


def host_summary(entry: Mapping[str, Any]) -> str:
    """What was found on one host, in one sentence."""
    return f"{entry['outcome']}: {_numbers(entry['counts'])}; the report above names them"


def _numbers(counts: Mapping[str, int]) -> str:
    parts = [_plural(counts[ERROR], "error"), f"{counts[UNKNOWN]} unknown", _plural(counts[WARNING], "warning")]
    return ", ".join([*parts, f"{counts['ignored']} ignored"] if counts["ignored"] else parts)


def _plural(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


# --- text -----------------------------------------------------------------------------------------------------------


def lines(report: Mapping[str, Any]) -> list[str]:
    """The report for people: a table of the hosts, what was found with the worst first, and the outcome."""
    text = table(HEADINGS, [_row(host, entry) for host, entry in report["hosts"].items()])
    groups = _grouped(report)
    for severity in _ORDER:
        counting = [group for group in groups if _severity(group[0]) == severity and not group[0]["ignored"]]
        for together in _by_reason(counting) if severity == UNKNOWN else [[group] for group in counting]:
            text += ["", *_block(together)]
    ignored = [(finding, hosts) for finding, hosts in groups if finding["ignored"]]
    text += ["", "Ignored:"] if ignored else []
    for finding, hosts in ignored:
        entry = finding["ignored"]
        text.append(f"  {_who(finding, hosts)}  {finding['id']}  until {entry['until']}: {entry['reason']}")
        text.append(f"    {_severity(finding)}: {finding['summary']}")
    text += _upgrade_lines(report)
    unused = report["unused_ignores"]
    text += ["", f"Entries of {ignore_list.NAME} that met nothing (remove them):"] if unused else []
    text += [f"  {' '.join(f'{key}={value}' for key, value in entry.items())}" for entry in unused]
    # Names and evidence come from inventories and hosts: nothing of them may steer the terminal.
    return [visible(line) for line in (*text, "", summary(report))]


def _row(host: str, entry: Mapping[str, Any]) -> list[Any]:
    counts = entry["counts"]
    if entry["state"] != "looked_at":
        return [host, {UNREACHABLE: UNREACHABLE}.get(entry["state"], "not looked at"), *[None] * 6]
    elapsed = max(entry["elapsed_s"].values(), default=0.0)
    return [
        host,
        entry["outcome"],
        *(counts[name] for name in (ERROR, UNKNOWN, WARNING, "ignored", OK)),
        f"{elapsed:.1f}",
    ]


def _grouped(report: Mapping[str, Any]) -> list[Group]:
    """What is not ok, once for all hosts that have the very same."""
    groups: dict[tuple[str, ...], Group] = {}
    for host, entry in report["hosts"].items():
        for finding in entry["findings"]:
            if finding.get("severity") == OK:
                continue
            parts = ("severity", "id", "instance", "summary", "evidence", "fix", "ignored", "expired")
            key = tuple(str(finding.get(part)) for part in parts)
            hosts = groups.setdefault(key, (finding, []))[1]
            if host not in hosts:
                hosts.append(host)
    return sorted(groups.values(), key=lambda group: str(group[0].get("id")))


def _by_reason(groups: Sequence[Group]) -> list[list[Group]]:
    """What could not be told for one and the same reason stands together: one driver that hangs is one block."""
    blocks: dict[tuple[str, ...], list[Group]] = {}
    for finding, hosts in groups:
        key = (str(finding.get("evidence")), str(finding.get("instance")), str(finding["expired"]), *hosts)
        blocks.setdefault(key, []).append((finding, hosts))
    return list(blocks.values())


def _block(groups: Sequence[Group]) -> list[str]:
    """Findings that share hosts, evidence and fix."""
    finding, hosts = groups[0]
    if len(groups) == 1:
        return _finding_lines(finding, hosts)
    ids = ", ".join(dict.fromkeys(str(one["id"]) for one, _hosts in groups))
    summaries = list(dict.fromkeys(str(one.get("summary")) for one, _hosts in groups))
    joint = {**finding, "id": ids, "summary": "\n".join(summaries)}
    return _finding_lines(joint, hosts)


def _severity(finding: Mapping[str, Any]) -> str:
    severity = str(finding.get("severity"))
    return severity if severity in _COUNTED else UNKNOWN


def _who(finding: Mapping[str, Any], hosts: Sequence[str]) -> str:
    named = ", ".join(hosts[:_NAMED])
    more = f" and {len(hosts) - _NAMED} more" if len(hosts) > _NAMED else ""
    instance = finding.get("instance")
    return f"{named}{more}" + (f" ({instance})" if instance else "")


def _finding_lines(finding: Mapping[str, Any], hosts: Sequence[str]) -> list[str]:
    text = [f"{_severity(finding)}  {_who(finding, hosts)}  {finding['id']}", *_labelled("", finding.get("summary"))]
    text += _labelled("seen: ", finding.get("evidence"))
    text += _labelled("fix:  ", finding.get("fix"))
    if finding["expired"]:
        entry = finding["expired"]
        text.append(f"  its entry in {ignore_list.NAME} ended on {entry['until']} ({entry['reason']}): it counts again")
    return text


def _labelled(label: str, value: Any) -> list[str]:
    """The value after its label, with its further lines below, so that they can be pasted."""
    parts = str(value or "").strip().splitlines()
    return [f"  {label if not number else ' ' * len(label)}{part}" for number, part in enumerate(parts)]


def _upgrade_lines(report: Mapping[str, Any]) -> list[str]:
    """What a newer release changes for the arguments in use, once for all hosts where it is the same."""
    if not report["upgrade_to"]:
        return []
    groups: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for host, entry in report["hosts"].items():
        for instance, change in entry["upgrade"].items():
            key = (f"from {change['from']} to {change['to']}", tuple(change["lines"]))
            groups.setdefault(key, []).append(f"{host} ({instance})")
    text: list[str] = []
    for (what, changes), members in groups.items():
        named = ", ".join(members[:_NAMED]) + (f" and {len(members) - _NAMED} more" if len(members) > _NAMED else "")
        text += ["", f"{named}: what changes {what} for the arguments in use"]
        text += [f"  {line}" for line in changes or ("nothing",)]
    return text


# --- JSON -----------------------------------------------------------------------------------------------------------

# What JSON leaves as it is, and a terminal obeys or UTF-8 cannot hold.
_NOT_PLAIN = re.compile("[\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def as_json(report: Mapping[str, Any]) -> str:
    """The whole report as JSON, with control characters escaped."""
    text = json.dumps(report, indent=2, ensure_ascii=False)
    return _NOT_PLAIN.sub(lambda match: f"\\u{ord(match.group()):04x}", text) + "\n"


# --- JUnit ----------------------------------------------------------------------------------------------------------

# What XML 1.0 cannot hold, even escaped.
_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit(report: Mapping[str, Any]) -> str:
    """The report as JUnit XML: a suite for each host, a case for each finding."""
    root = ElementTree.Element("testsuites", name="serving.sglang preflight")
    for host, entry in report["hosts"].items():
        cases = [_case(finding, bool(report["strict"])) for finding in entry["findings"]]
        kinds = [child.tag for case in cases for child in case]
        suite = ElementTree.SubElement(
            root,
            "testsuite",
            name=_xml(host),
            tests=str(len(cases)),
            failures=str(kinds.count("failure")),
            errors=str(kinds.count("error")),
            skipped=str(kinds.count("skipped")),
            time=f"{max(entry['elapsed_s'].values(), default=0.0):.3f}",
        )
        for case in cases:
            case.set("classname", _xml(f"{host}.{case.get('classname')}"))
            suite.append(case)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _case(finding: Mapping[str, Any], strict: bool) -> ElementTree.Element:
    instance = finding.get("instance")
    name = f"{finding.get('id')} ({instance})" if instance else str(finding.get("id"))
    case = ElementTree.Element("testcase", classname=_xml(finding.get("area") or ""), name=_xml(name))
    severity, message = _severity(finding), _xml(finding.get("summary"))
    text = _xml("\n".join(_finding_lines(finding, [])))
    if severity == OK:
        return case
    if finding["ignored"]:
        entry = finding["ignored"]
        ElementTree.SubElement(case, "skipped", message=_xml(f"ignored until {entry['until']}: {entry['reason']}"))
    elif severity == ERROR or (severity == WARNING and strict):
        ElementTree.SubElement(case, "failure", message=message, type=severity).text = text
    elif severity == WARNING:
        ElementTree.SubElement(case, "system-out").text = text
    else:
        ElementTree.SubElement(case, "error", message=message, type=UNKNOWN).text = text
    return case


def _xml(value: Any) -> str:
    text = str(value if value is not None else "")
    return _NOT_XML.sub("\ufffd", "\n".join(visible(line) for line in text.split("\n")))
