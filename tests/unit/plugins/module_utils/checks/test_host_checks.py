# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The rules about a host, on recorded and made readings: each fault is found, and no clean bill for what is unread."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.serving.sglang.plugins.module_utils import machine
from ansible_collections.serving.sglang.plugins.module_utils.checks import host_checks, service_readings
from ansible_collections.serving.sglang.plugins.module_utils.checks.card_health import CardHealth, Health, ListedCard
from ansible_collections.serving.sglang.plugins.module_utils.checks.check import run_checks
from ansible_collections.serving.sglang.plugins.module_utils.checks.driver_readings import (
    KernelModule,
    Library,
    PciDevice,
)
from ansible_collections.serving.sglang.plugins.module_utils.checks.host_readings import (
    DiskSpace,
    HostMemory,
    HostReadings,
)
from ansible_collections.serving.sglang.plugins.module_utils.checks.kernel_log import KernelLog, parse_kernel_log
from ansible_collections.serving.sglang.plugins.module_utils.checks.process_scan import Held, ProcessScan, ShmFile
from ansible_collections.serving.sglang.plugins.module_utils.checks.reading import Unknown
from ansible_collections.serving.sglang.plugins.module_utils.checks.service_readings import (
    Clock,
    Distribution,
    Service,
    Upgrades,
)
from ansible_collections.serving.sglang.plugins.module_utils.checks.wanted import GIB, DiskNeed, read_wanted
from ansible_collections.serving.sglang.plugins.module_utils.finding import ERROR, OK, UNKNOWN, WARNING, Finding
from ansible_collections.serving.sglang.plugins.module_utils.pinned_packages import MINIMUM_DRIVER
from ansible_collections.serving.sglang.plugins.module_utils.ports import Listener

DATA = Path(__file__).resolve().parents[4] / "data"
CASES = {case["id"]: case for case in yaml.safe_load((DATA / "cases" / "toolchain.yml").read_text(encoding="utf-8"))}
UUID = "GPU-a0000000-0000-0000-0000-000000000001"
MAIN = {"name": "main", "version": "0.5.22", "port": 30000, "arguments": {}}


def recorded(name: str) -> HostReadings:
    """A host as it was recorded, with the services of a well-kept one, which the recording does not have."""
    data = json.loads((DATA / "host" / f"{name}.json").read_text(encoding="utf-8"))
    health = data["health"]
    processes = data["processes"]
    return HostReadings(
        wanted=read_wanted([MAIN]),
        distribution=Distribution("debian", "Ubuntu 24.04.3 LTS"),
        kernel_module=KernelModule(**data["kernel_module"]),
        library=Library(**data["library"]),
        pci=tuple(PciDevice(**device) for device in data["pci"]),
        fabric_manager_version=None,
        gpus=machine.readings_from(data["gpus"]),
        listed=tuple(ListedCard(**{**card, "mig_uuids": tuple(card["mig_uuids"])}) for card in data["listed"]),
        health=Health(health["source"], tuple(CardHealth(**card) for card in health["cards"])),
        dmesg=KernelLog(**{**data["dmesg"], "xids": ()}),
        kernel_journal=Unknown("journalctl is not installed"),
        processes=ProcessScan(shm=tuple(ShmFile(**{**each, "users": ()}) for each in processes["shm"])),
        memory=HostMemory(**data["memory"]),
        shm=DiskSpace("/dev/shm", "/dev/shm", 27, 64 * GIB, 64 * GIB, True),
        services=services(),
        default_limits=Service("systemd's defaults", {"LimitNOFILESoft": "1024", "LimitMEMLOCKSoft": "8388608"}),
        earlyoom="",
        upgrades=Upgrades("unattended-upgrades", False, "/usr/bin/unattended-upgrade is not there"),
        clock=Clock(True, "adjtimex(2)", 0.002),
        docker_limits={},
        rdma=(),
    )


def services(**changed: dict[str, str]) -> dict[str, Service]:
    """Units that are not there, but for those that are named (dots and dashes as underscores)."""
    names = ["nvidia-fabricmanager.service", "nvidia-persistenced.service", "containerd.service", "docker.service"]
    names += [*service_readings.GUARD_SERVICES, *service_readings.CLOCK_SERVICES, "-.slice", "sglang.slice"]
    names += ["sglang-main.service", "sglang-main.slice"]
    values = {name: {"LoadState": "not-found", "ActiveState": "inactive"} for name in names}
    for name in names:
        key = name.replace("-.", "root.").replace(".", "_").replace("-", "_")
        if key in changed:
            values[name] = {"LoadState": "loaded", "ActiveState": "active", **changed[key]}
    return {name: Service(name, found) for name, found in values.items()}


FINE = recorded("h200-readings")
CARD = FINE.health.cards[0]  # type: ignore[union-attr]
NOTHING = HostReadings(wanted=read_wanted([MAIN]))


def look(readings: HostReadings) -> list[Finding]:
    return run_checks(host_checks.CHECKS, readings)


def of(readings: HostReadings, kind: str) -> list[Finding]:
    found = [finding for finding in look(readings) if finding.id == kind]
    assert found, kind
    return found


def worst(readings: HostReadings, kind: str) -> str:
    order = (OK, WARNING, UNKNOWN, ERROR)
    return max((finding.severity for finding in of(readings, kind)), key=order.index)


def card(**changed: Any) -> Health:
    return Health("NVML", (replace(CARD, **changed),))


def wanting(**changed: Any) -> Any:
    return read_wanted([{**MAIN, **changed}])


def kernel(name: str, **how: float) -> KernelLog:
    return parse_kernel_log((DATA / "host" / f"kernel-{name}.log").read_text(encoding="utf-8"), "dmesg", **how)


def test_a_well_kept_host_is_fine() -> None:
    assert {finding.id: finding for finding in look(FINE) if finding.severity != OK} == {}


def test_nothing_read_is_no_clean_bill() -> None:
    found = look(NOTHING)
    assert {finding.severity for finding in found} <= {OK, UNKNOWN}
    # What depends on what was declared alone may be fine.
    assert {finding.id for finding in found if finding.severity == OK} == {
        "host.declaration",
        "cards.declared_missing",
        "disk.space",
    }
    assert all(finding.evidence for finding in found if finding.severity == UNKNOWN)


FAULTS: list[tuple[str, str, dict[str, Any]]] = [
    ("driver.missing", ERROR, {"kernel_module": KernelModule(None, "nothing is there")}),
    ("driver.nouveau", ERROR, {"kernel_module": KernelModule(None, "nothing is there", nouveau=True)}),
    ("driver.nouveau", WARNING, {"kernel_module": KernelModule("580.159.04", "proc", nouveau=True)}),
    ("driver.library_mismatch", ERROR, {"library": Library("580.95.05", "/usr/lib/libnvidia-ml.so.580.95.05")}),
    ("driver.library_mismatch", ERROR, {"library": Library(None)}),
    (
        "driver.fabric_manager",
        ERROR,
        {"pci": (PciDevice("0000:c4:00.0", "0x22a3", "0x068000"), PciDevice("0000:18:00.0", "0x2330", "0x030200"))},
    ),
    (
        "driver.fabric_manager",
        ERROR,
        {
            "pci": tuple(PciDevice(f"0000:{bus}:00.0", "0x2901", "0x030200") for bus in ("18", "2a")),
            "health": card(fabric_state="In Progress"),
        },
    ),
    (
        "driver.fabric_manager_version",
        ERROR,
        {
            "pci": (PciDevice("0000:c4:00.0", "0x22a3", "0x068000"),),
            "services": services(nvidia_fabricmanager_service={}),
            "fabric_manager_version": "580.95.05",
        },
    ),
    (
        "driver.unattended_upgrade",
        WARNING,
        {"upgrades": Upgrades("unattended-upgrades", True, "on", ("libnvidia-compute-580-server",))},
    ),
    ("driver.unattended_upgrade", WARNING, {"upgrades": Upgrades("dnf-automatic", True, "on", ("nvidia-open",))}),
    ("cards.declared_missing", ERROR, {"wanted": wanting(cards=[1])}),
    ("cards.declared_missing", ERROR, {"wanted": wanting(cards=["GPU-ffffffff-0000-0000-0000-000000000001"])}),
    (
        "cards.lost",
        ERROR,
        {"gpus": machine.Readings("nvml", (machine.Card(0, problem="lost: NVML: GPU is lost"),), machine.Host(1, 1))},
    ),
    (
        "cards.lost",
        WARNING,
        {"pci": tuple(PciDevice(f"0000:00:0{n}.0", "0x2335", "0x030200") for n in (6, 7))},
    ),
    ("cards.mig", ERROR, {"health": card(mig=True, mig_pending=True), "wanted": wanting(cards=[0])}),
    ("cards.mig", ERROR, {"health": card(mig=True, mig_pending=True), "wanted": wanting(cards=[UUID])}),
    ("cards.mig", WARNING, {"health": card(mig_pending=True)}),
    ("cards.persistence_off", WARNING, {"health": card(persistence=False)}),
    ("cards.ecc_uncorrectable", ERROR, {"health": card(uncorrectable_volatile=3)}),
    ("cards.reset_pending", WARNING, {"health": card(remap_pending=True)}),
    ("cards.reset_pending", WARNING, {"health": card(retirement_pending=True)}),
    ("cards.reset_pending", ERROR, {"health": card(remap_failure=True)}),
    ("cards.reset_pending", ERROR, {"health": card(recovery_action="node reboot")}),
    ("cards.xid", ERROR, {"dmesg": kernel("fallen-off", uptime_s=9100.0)}),
    ("cards.xid", ERROR, {"kernel_journal": kernel("fallen-off", uptime_s=9100.0)}),
    ("cards.xid", WARNING, {"dmesg": kernel("programs", uptime_s=9100.0)}),
    ("memory.foreign_process", WARNING, {"gpus": recorded("h200-neighbour").gpus}),
    (
        "ports.taken",
        ERROR,
        {"processes": ProcessScan((Held(Listener("0.0.0.0", 30000, 7, 812, "nginx"), "0::/nginx.service"),))},
    ),
    ("memory.guard_daemon", WARNING, {"services": services(earlyoom_service={})}),
    ("memory.guard_daemon", WARNING, {"processes": ProcessScan(guards=("nohang",))}),
    (
        "memory.guard_daemon",
        WARNING,
        {"services": services(systemd_oomd_service={}, root_slice={"ManagedOOMSwap": "kill"})},
    ),
    ("memory.huge_pages", WARNING, {"memory": HostMemory(64 * GIB, 20 * GIB, huge_pages=32 * GIB)}),
    ("memory.pinned_pages", WARNING, {"memory": HostMemory(64 * GIB, 20 * GIB, shared=40 * GIB)}),
    ("shm.too_small", ERROR, {"shm": DiskSpace("/dev/shm", "/dev/shm", 1, 64 << 20, 64 << 20, True)}),
    ("shm.too_small", ERROR, {"shm": DiskSpace("/dev/shm", "/dev", 1, GIB, GIB, False)}),
    ("shm.leaked", WARNING, {"processes": ProcessScan(shm=(ShmFile("nccl-AbCd12", 5 * GIB, 7200.0, 0),))}),
    (
        "limits.nofile",
        WARNING,
        {"services": services(sglang_main_service={"LimitNOFILESoft": "1024", "LimitMEMLOCKSoft": "infinity"})},
    ),
    (
        "limits.memlock",
        WARNING,
        {"services": services(sglang_main_service={"LimitNOFILESoft": "1048576", "LimitMEMLOCKSoft": "8388608"})},
    ),
    (
        "limits.memlock",
        ERROR,
        {
            "services": services(sglang_main_service={"LimitNOFILESoft": "1048576", "LimitMEMLOCKSoft": "8388608"}),
            "rdma": ("mlx5_0",),
            "wanted": wanting(nnodes=2),
        },
    ),
    (
        "limits.nofile",
        WARNING,
        {
            "services": services(containerd_service={"LimitNOFILESoft": "1024", "LimitMEMLOCKSoft": "infinity"}),
            "wanted": wanting(runtime="docker"),
        },
    ),
    (
        "disk.space",
        ERROR,
        {
            "needs": (DiskNeed("/opt/sglang/x", 15 * GIB, "an environment", "given"),),
            "spaces": {"/opt/sglang/x": DiskSpace("/opt/sglang/x", "/opt", 1, 9 * GIB, 50 * GIB, False)},
        },
    ),
    ("clock.unsynchronised", WARNING, {"clock": Clock(False, "adjtimex(2)", 16.0)}),
    ("host.declaration", ERROR, {"wanted": wanting(port="many")}),
    ("host.declaration", ERROR, {"wanted": wanting(cards=["the first"])}),
]


@pytest.mark.parametrize(("kind", "severity", "changed"), FAULTS)
def test_fault_is_found_and_only_with_it(kind: str, severity: str, changed: dict[str, Any]) -> None:
    assert worst(replace(FINE, **changed), kind) == severity
    if kind in {finding.id for finding in look(FINE)}:
        assert worst(FINE, kind) == OK
    for finding in of(replace(FINE, **changed), kind):
        if finding.severity != OK:
            assert finding.evidence
            assert finding.fix


def test_every_kind_has_a_fault_in_this_table() -> None:
    kinds = {kind.id for each in host_checks.CHECKS for kind in each.kinds}
    tested = {kind for kind, _severity, _changed in FAULTS}
    elsewhere = {"driver.too_old", "memory.swap_on_unified"}
    assert kinds == tested | elsewhere


@pytest.mark.parametrize(
    ("field", "kinds"),
    [
        ("kernel_module", ["driver.missing", "driver.nouveau", "driver.library_mismatch", "driver.too_old"]),
        ("library", ["driver.library_mismatch"]),
        ("upgrades", ["driver.unattended_upgrade"]),
        ("gpus", ["cards.lost", "memory.foreign_process"]),
        ("health", ["cards.mig", "cards.persistence_off", "cards.ecc_uncorrectable", "cards.reset_pending"]),
        ("dmesg", ["cards.xid"]),
        ("processes", ["ports.taken", "shm.leaked"]),
        ("memory", ["memory.huge_pages", "memory.pinned_pages", "memory.swap_on_unified"]),
        ("shm", ["shm.too_small"]),
        ("services", ["limits.nofile"]),
        ("clock", ["clock.unsynchronised"]),
    ],
)
def test_unread_is_unknown_with_the_reason(field: str, kinds: list[str]) -> None:
    found = look(replace(FINE, **{field: Unknown("permission denied by a test")}))
    unknown = {finding.id: finding for finding in found if finding.severity == UNKNOWN}
    assert set(kinds) <= set(unknown)
    assert all("permission denied by a test" in unknown[kind].evidence for kind in kinds)
    assert not [finding for finding in found if finding.severity in (ERROR, WARNING)]


def test_case_driver_too_old_for_the_image() -> None:
    case = CASES["driver-too-old-for-the-image"]["given"]
    readings = replace(
        FINE,
        kernel_module=KernelModule(case["driver"], "/proc/driver/nvidia/version"),
        wanted=wanting(runtime="docker", image=case["image"]),
    )
    (finding,) = of(readings, "driver.too_old")
    assert finding.severity == ERROR
    assert "CUDA 13 needs driver 580 or newer" in finding.summary
    assert "570.124.06" in finding.evidence
    assert "upgrade the driver" in finding.fix
    assert "v0.5.19-cu129, the last CUDA 12 tag" in finding.fix
    assert "unless the image carries CUDA's compatibility library for this driver branch and card class" in finding.fix


OLD = KernelModule("570.124.06", "proc")
GEFORCE = machine.Readings("nvml", (machine.Card(0, name="NVIDIA GeForce RTX 4090"),), machine.Host(1, 1))


@pytest.mark.parametrize(
    ("wanted", "changed", "severity"),
    [
        ({"image": "lmsysorg/sglang:v0.5.19-cu129"}, {}, OK),
        ({"image": "registry:5000/llm/sglang:v0.5.19-cu129@sha256:aa"}, {}, OK),
        ({"image": "lmsysorg/sglang:v0.5.18-cu130"}, {}, ERROR),
        ({"image": "lmsysorg/sglang:v0.5.18"}, {}, UNKNOWN),
        ({"image": "lmsysorg/sglang:v0.5.18", "cuda": "12.9"}, {}, OK),
        ({"image": "lmsysorg/sglang:v0.5.40"}, {}, ERROR),
        ({"image": "our/own:one", "version": ""}, {}, UNKNOWN),
        ({"image": "our/own:one"}, {}, ERROR),
        ({"cuda": "14.0"}, {}, UNKNOWN),
        ({}, {}, ERROR),
        ({"arguments": {"device": "cpu"}}, {}, OK),
        ({"cuda_compat": True}, {}, WARNING),
        ({"cuda_compat": False}, {}, ERROR),
        ({"cuda_compat": True}, {"gpus": GEFORCE}, ERROR),
        ({"cuda_compat": True}, {"gpus": Unknown("hung")}, UNKNOWN),
        ({}, {"kernel_module": KernelModule("580.65.06", "proc")}, OK),
        ({}, {"kernel_module": KernelModule("580.65.05", "proc")}, ERROR),
        ({}, {"kernel_module": KernelModule("590.44.01", "proc")}, OK),
    ],
)
def test_driver_against_cuda(wanted: dict[str, Any], changed: dict[str, Any], severity: str) -> None:
    readings = replace(FINE, **{"kernel_module": OLD, **changed}, wanted=wanting(**wanted))
    assert worst(readings, "driver.too_old") == severity


@given(st.integers(400, 700), st.integers(0, 300), st.integers(0, 30), st.sampled_from(["12.9", "13.0"]))
def test_driver_ranges(branch: int, minor: int, patch: int, cuda: str) -> None:
    module = KernelModule(f"{branch}.{minor:02d}.{patch:02d}", "proc")
    oldest = MINIMUM_DRIVER[int(cuda[:2])]
    new_enough = (branch, minor, patch) >= tuple(map(int, oldest.split(".")))
    found = worst(replace(FINE, kernel_module=module, wanted=wanting(cuda=cuda)), "driver.too_old")
    assert found == (OK if new_enough else ERROR)


def test_host_without_card_is_fine_for_the_cpu_alone() -> None:
    bare = {
        "kernel_module": KernelModule(None, "nothing is there"),
        "library": Library(None),
        "pci": (),
        "gpus": machine.Readings("none", (), machine.Host(1, 1)),
        "listed": Unknown("nvidia-smi is not installed"),
        "health": Unknown("nvidia-smi is not installed"),
        "dmesg": Unknown("not permitted"),
    }
    on_cpu = replace(FINE, **bare, wanted=wanting(arguments={"device": "cpu"}))
    assert [finding for finding in look(on_cpu) if finding.severity != OK] == []
    on_cuda = replace(FINE, **bare)
    (missing,) = of(on_cuda, "driver.missing")
    assert missing.severity == ERROR
    assert "'main'" in missing.summary
    # Everything else about cards says the one cause.
    assert {finding.evidence for finding in of(on_cuda, "cards.lost")} == {"no NVIDIA driver is loaded"}
    undeclared = replace(FINE, **bare, wanted=())
    assert worst(undeclared, "driver.missing") == OK
    with_card = {**bare, "pci": (PciDevice("0000:01:00.0", "0x2335", "0x030200"),)}
    assert worst(replace(FINE, **with_card, wanted=()), "driver.missing") == ERROR


@pytest.mark.parametrize(("family", "words"), [("debian", "apt "), ("rhel", "dnf "), ("arch", "Debian, Ubuntu: `apt")])
def test_fix_fits_the_distribution(family: str, words: str) -> None:
    nothing = {"kernel_module": KernelModule(None, "nothing"), "library": Library(None)}
    readings = replace(FINE, **nothing, distribution=Distribution(family))
    assert words in of(readings, "driver.missing")[0].fix


def test_installed_driver_that_is_not_loaded_is_not_installed_again() -> None:
    unloaded = replace(FINE, kernel_module=KernelModule(None, "nothing is there"))
    assert "modprobe nvidia" in of(unloaded, "driver.missing")[0].fix
    assert "dkms status" in of(unloaded, "driver.missing")[0].fix
    assert "apt install" in of(replace(unloaded, library=Library(None)), "driver.missing")[0].fix


def test_fix_for_oomd_fits_the_runtime() -> None:
    limits = {"LimitNOFILE": "infinity", "LimitMEMLOCK": "infinity"}
    units = services(systemd_oomd_service={}, root_slice={"ManagedOOMSwap": "kill"}, sglang_main_service=limits)
    readings = replace(FINE, services=units)
    omit = "systemctl set-property sglang-main.service ManagedOOMPreference=omit"
    assert of(readings, "memory.guard_daemon")[0].fix == omit
    # The preference of the unit does not reach the groups of a container; and a unit must be there to be changed.
    off = "systemctl set-property -- -.slice ManagedOOMSwap=auto"
    assert of(replace(readings, wanted=wanting(runtime="podman")), "memory.guard_daemon")[0].fix == off
    units = services(systemd_oomd_service={}, root_slice={"ManagedOOMSwap": "kill"})
    assert of(replace(readings, services=units), "memory.guard_daemon")[0].fix == off
    assert of(replace(readings, services=units, wanted=()), "memory.guard_daemon")[0].fix == off


def test_fabric_manager() -> None:
    switches = (PciDevice("0000:c4:00.0", "0x22a3", "0x068000"),)
    good = replace(
        FINE,
        pci=switches,
        services=services(nvidia_fabricmanager_service={}),
        fabric_manager_version="580.159.04",
    )
    assert worst(good, "driver.fabric_manager") == OK
    assert worst(good, "driver.fabric_manager_version") == OK
    failed = services(nvidia_fabricmanager_service={"ActiveState": "failed"})
    assert "is failed" in of(replace(good, services=failed), "driver.fabric_manager")[0].summary
    # In a virtual machine of such a host the fabric is set up from outside.
    outside = replace(good, services=services(), health=card(fabric_state="Completed"))
    assert worst(outside, "driver.fabric_manager") == OK
    assert worst(replace(good, pci=Unknown("no /sys"), health=Unknown("x")), "driver.fabric_manager") == UNKNOWN
    two = tuple(PciDevice(f"0000:{bus}:00.0", "0x26b9", "0x030200") for bus in ("18", "2a"))
    assert worst(replace(FINE, pci=two), "driver.fabric_manager") == OK  # two L40S: no fabric at all
    assert worst(replace(FINE, pci=two, health=card(fabric_state=Unknown("old"))), "driver.fabric_manager") == OK


def test_several_sxm_cards_without_word_of_a_fabric_are_unknown() -> None:
    cards = tuple(machine.Card(n, name="NVIDIA A100-SXM4-80GB", bus=f"00000000:1{n}:00.0") for n in range(4))
    readings = replace(
        FINE,
        pci=tuple(PciDevice(f"0000:1{n}:00.0", "0x20b2", "0x030200") for n in range(4)),
        gpus=machine.Readings("nvml", cards, machine.Host(1, 1)),
        health=Unknown("NVML is not there"),
    )
    assert worst(readings, "driver.fabric_manager") == UNKNOWN


def test_cards_by_beginning_of_a_uuid_and_mig() -> None:
    listed = (ListedCard(0, "NVIDIA A100", UUID, ("MIG-b0000000-0000-5000-8000-000000000001",)),)
    for declared in ([0], [UUID], ["GPU-a0000000"], ["MIG-b0000000-0000-5000-8000-000000000001"]):
        assert worst(replace(FINE, listed=listed, wanted=wanting(cards=declared)), "cards.declared_missing") == OK
    # Without nvidia-smi NVML's list is as good, unless there may be MIG devices.
    assert worst(replace(FINE, listed=Unknown("hung"), wanted=wanting(cards=[0])), "cards.declared_missing") == OK
    gpus = replace(FINE.gpus, cards=(replace(FINE.gpus.cards[0], mig=True),))  # type: ignore[union-attr, type-var]
    hung = replace(FINE, listed=Unknown("hung"), gpus=gpus, wanted=wanting(cards=[0]))
    assert worst(hung, "cards.declared_missing") == UNKNOWN


def test_health_of_one_field_unread() -> None:
    readings = replace(FINE, health=card(persistence=Unknown("NVML: no permission")))
    assert worst(readings, "cards.persistence_off") == UNKNOWN
    assert worst(readings, "cards.ecc_uncorrectable") == OK
    # A card without ECC has no such errors.
    assert worst(replace(FINE, health=card(uncorrectable_volatile=None)), "cards.ecc_uncorrectable") == OK


@pytest.mark.parametrize(
    ("log", "said"),
    [
        ("fallen-off", {("Xid 79", "0000:3b:00"): (ERROR, "reboot"), ("Xid 154", "0000:3b:00"): (ERROR, "reboot")}),
        (
            "memory",
            {
                ("Xid 63", "0000:5e:00"): (WARNING, "gpu-reset"),
                ("Xid 94", "0000:5e:00"): (WARNING, "gpu-reset"),
                ("Xid 48", "0000:86:00"): (ERROR, "gpu-reset"),
                ("Xid 64", "0000:86:00"): (ERROR, "reboot"),
                ("Xid 95", "0000:af:00"): (ERROR, "gpu-reset"),
            },
        ),
        (
            "links",
            {
                ("SXid 20034", "0000:06:00"): (ERROR, "reboot"),
                ("Xid 74", "0000:18:00"): (ERROR, "gpu-reset"),
                ("Xid 119", "0000:86:00"): (ERROR, "gpu-reset"),
            },
        ),
        ("programs", {("Xid 31", "0000:3b:00"): (WARNING, "server's log")}),
    ],
)
def test_xid_lines(log: str, said: dict[tuple[str, str], tuple[str, str]]) -> None:
    found = of(replace(FINE, dmesg=kernel(log, uptime_s=10000.0)), "cards.xid")
    assert len(found) == len(said)
    for (name, bus), (severity, fix) in said.items():
        (finding,) = [each for each in found if each.summary.startswith(f"{name} on") and bus in each.summary]
        assert finding.severity == severity
        assert fix in finding.fix


def test_no_memory_lines_alone_are_no_alarm() -> None:
    (finding,) = of(replace(FINE, dmesg=kernel("no-memory", uptime_s=1000.0)), "cards.xid")
    assert finding.severity == OK
    assert "2 lines with NV_ERR_NO_MEMORY" in finding.evidence


def test_old_fault_of_a_card_that_answers_is_history() -> None:
    health = Health("NVML", (replace(CARD, bus="00000000:3B:00.0"),))
    log = kernel("fallen-off", uptime_s=9012.0 + 3 * 86400)
    assert worst(replace(FINE, dmesg=log, health=health), "cards.xid") == WARNING
    # As long as it does not answer, it is none.
    assert worst(replace(FINE, dmesg=log), "cards.xid") == ERROR
    assert worst(replace(FINE, dmesg=kernel("fallen-off"), health=health), "cards.xid") == ERROR  # age not told


def test_log_that_does_not_reach_back_says_so() -> None:
    log = parse_kernel_log("[ 7200.000000] eth0: link is up", "dmesg", uptime_s=9000.0)
    (finding,) = of(replace(FINE, dmesg=log), "cards.xid")
    assert "of the last 0.5 h, not back to the boot" in finding.evidence


def test_foreign_memory() -> None:
    busy = recorded("h200-neighbour").gpus
    (finding,) = of(replace(FINE, gpus=busy), "memory.foreign_process")
    assert "python3" in finding.evidence
    shared = wanting(cards_shared=True)
    assert worst(replace(FINE, gpus=busy, wanted=shared), "memory.foreign_process") == OK
    assert isinstance(busy, machine.Readings)
    only = busy.cards[0]
    ours = replace(busy, cards=(replace(only, processes=tuple(replace(p, ours=True) for p in only.processes)),))
    assert worst(replace(FINE, gpus=ours), "memory.foreign_process") == OK
    monitor = replace(busy, cards=(replace(only, processes=(machine.Process(9, "dcgm", "root", 300.0),)),))
    assert worst(replace(FINE, gpus=monitor), "memory.foreign_process") == OK
    silent = replace(busy, cards=(replace(only, processes=(machine.Process(9, "python3", "bob", None),)),))
    assert worst(replace(FINE, gpus=silent), "memory.foreign_process") == UNKNOWN
    # A card that nobody declared is of no interest.
    other = replace(busy, cards=(only, machine.Card(1, uuid="GPU-b0000000")))
    assert worst(replace(FINE, gpus=other, wanted=wanting(cards=[1])), "memory.foreign_process") == OK


def held(port: int = 30000, pid: int | None = 812, command: str = "nginx", group: str = "0::/x.service") -> Held:
    return Held(Listener("0.0.0.0", port, 7, pid, command), group)


@pytest.mark.parametrize(
    ("scan", "changed", "severity"),
    [
        (ProcessScan((held(group="0::/sglang.slice/sglang-main.slice/sglang-main.service"),)), {}, OK),
        (ProcessScan((held(group="0::/sglang.slice/sglang-other.slice/sglang-other.service"),)), {}, ERROR),
        (ProcessScan((held(group="0::/sglang.slice/sglang-main2.slice/x.service"),)), {}, ERROR),
        (ProcessScan((held(pid=None),), hidden="run as root"), {}, UNKNOWN),
        (ProcessScan((held(pid=None),)), {}, ERROR),
        (ProcessScan((held(port=30001),)), {}, OK),
        (
            ProcessScan((Held(Listener("127.0.0.1", 30000, 7, 1, "x")),)),
            {"wanted": wanting(arguments={"host": "10.0.0.5"})},
            OK,
        ),
        (
            ProcessScan((held(port=30233),)),
            {"wanted": wanting(arguments={"dp_size": 2, "enable-dp-attention": True})},
            ERROR,
        ),
        (
            ProcessScan((held(command="/usr/bin/docker-proxy -proto tcp"),)),
            {
                "wanted": wanting(runtime="docker"),
                "services": services(
                    sglang_main_service={}, containerd_service={"LimitNOFILE": "infinity", "LimitMEMLOCK": "infinity"}
                ),
            },
            OK,
        ),
        (
            ProcessScan((held(command="/usr/bin/docker-proxy -proto tcp"),)),
            {"wanted": wanting(runtime="docker")},
            ERROR,
        ),
    ],
)
def test_ports(scan: ProcessScan, changed: dict[str, Any], severity: str) -> None:
    assert worst(replace(FINE, processes=scan, **changed), "ports.taken") == severity


def test_port_on_both_protocols_is_one_finding() -> None:
    scan = ProcessScan((held(), Held(Listener("::", 30000, 8, 812, "nginx"))))
    assert len(of(replace(FINE, processes=scan), "ports.taken")) == 1


GB10 = machine.Readings(
    "nvml", (machine.Card(0, UUID, "NVIDIA GB10", memory_status=machine.NOT_SUPPORTED),), machine.Host(1, 1)
)


def test_swap() -> None:
    swap = HostMemory(122 * GIB, 100 * GIB, swap_total=16 * GIB)
    assert worst(replace(FINE, memory=swap, gpus=GB10), "memory.swap_on_unified") == WARNING
    assert worst(replace(FINE, memory=swap), "memory.swap_on_unified") == OK
    assert worst(replace(FINE, gpus=GB10), "memory.swap_on_unified") == OK
    assert worst(replace(FINE, memory=swap, gpus=Unknown("hung")), "memory.swap_on_unified") == UNKNOWN


def test_pinned_pages_of_unified_memory_are_an_error() -> None:
    memory = HostMemory(122 * GIB, 9 * GIB, shared=61 * GIB)
    assert worst(replace(FINE, memory=memory, gpus=GB10), "memory.pinned_pages") == ERROR


@pytest.mark.parametrize(
    ("changed", "severity"),
    [
        ({"services": services(earlyoom_service={}), "earlyoom": "-r 3600 -m 5"}, WARNING),
        ({"services": services(earlyoom_service={}), "earlyoom": "--avoid '(^|/)(python3|sglang::.*)$'"}, OK),
        ({"services": services(earlyoom_service={}), "earlyoom": '--avoid "^(python3|sglang.*)$" -m 4'}, OK),
        ({"services": services(earlyoom_service={}), "earlyoom": "--avoid '^sshd$'"}, WARNING),
        ({"services": services(earlyoom_service={}), "earlyoom": "--avoid '(('"}, WARNING),
        ({"services": services(earlyoom_service={}), "earlyoom": Unknown("denied")}, WARNING),
        ({"services": services(earlyoom_service={}), "gpus": GB10}, ERROR),
        ({"services": services(systemd_oomd_service={})}, OK),
        ({"services": services(systemd_oomd_service={}, sglang_slice={"ManagedOOMMemoryPressure": "kill"})}, WARNING),
        (
            {
                "services": services(
                    systemd_oomd_service={},
                    root_slice={"ManagedOOMSwap": "kill"},
                    sglang_main_service={
                        "ManagedOOMPreference": "omit",
                        "LimitNOFILE": "infinity",
                        "LimitMEMLOCK": "infinity",
                    },
                )
            },
            OK,
        ),
        ({"services": Unknown("no systemd"), "processes": ProcessScan(guards=("systemd-oomd",))}, UNKNOWN),
        ({"services": Unknown("no systemd"), "processes": ProcessScan(guards=("earlyoom",))}, WARNING),
        ({"services": Unknown("no systemd"), "processes": Unknown("no /proc")}, UNKNOWN),
        ({"services": services(nohang_desktop_service={}), "processes": ProcessScan(guards=("nohang",))}, WARNING),
    ],
)
def test_memory_guards(changed: dict[str, Any], severity: str) -> None:
    assert worst(replace(FINE, **changed), "memory.guard_daemon") == severity


def test_limits_that_systemd_does_not_say_are_unknown() -> None:
    garbled = services(sglang_main_service={"LimitNOFILESoft": "lots"})
    assert worst(replace(FINE, services=garbled), "limits.nofile") == UNKNOWN
    assert worst(replace(FINE, wanted=wanting(runtime="docker")), "limits.nofile") == UNKNOWN
    (finding,) = of(replace(FINE, wanted=()), "limits.nofile")
    assert (finding.severity, "1024" in finding.evidence) == (OK, True)


def test_limits_that_docker_sets() -> None:
    engine = services(containerd_service={"LimitNOFILESoft": "1024", "LimitMEMLOCKSoft": "8388608"})
    boxed = replace(FINE, services=engine, wanted=wanting(runtime="docker"))
    assert (worst(boxed, "limits.nofile"), worst(boxed, "limits.memlock")) == (WARNING, WARNING)
    given = replace(boxed, docker_limits={"nofile": 1048576, "memlock": -1})
    assert (worst(given, "limits.nofile"), worst(given, "limits.memlock")) == (OK, OK)
    assert worst(replace(boxed, docker_limits=Unknown("garbled")), "limits.nofile") == UNKNOWN


def test_needs_on_one_disk_are_added_up() -> None:
    space = {"device": 1, "free": 20 * GIB, "total": 100 * GIB, "exists": False}
    spaces = {path: DiskSpace(path, "/", **space) for path in ("/a", "/b")}  # type: ignore[arg-type]
    needs = (DiskNeed("/a", 12 * GIB, "one", "given"), DiskNeed("/b", 12 * GIB, "two", "given"))
    assert worst(replace(FINE, needs=needs[:1], spaces=spaces), "disk.space") == OK
    assert worst(replace(FINE, needs=needs, spaces=spaces), "disk.space") == ERROR
    fix = next(
        each.fix for each in of(replace(FINE, needs=needs, spaces=spaces), "disk.space") if each.severity == ERROR
    )
    assert fix.startswith("free space on this file system, or mount a larger disk: `du -xh --max-depth=2 ")
    assert "option" not in fix
    maybe = (needs[0], replace(needs[1], may_be_there=True))
    assert worst(replace(FINE, needs=maybe, spaces=spaces), "disk.space") == WARNING
    elsewhere = {**spaces, "/b": replace(spaces["/b"], device=2)}
    assert worst(replace(FINE, needs=needs, spaces=elsewhere), "disk.space") == OK
    assert worst(replace(FINE, needs=needs, spaces={**spaces, "/b": Unknown("stale NFS")}), "disk.space") == UNKNOWN


def test_upgrades_that_leave_the_driver_alone() -> None:
    on = Upgrades("unattended-upgrades", True, "on", ("nvidia-driver-580",))
    assert worst(replace(FINE, upgrades=on), "driver.unattended_upgrade") == WARNING
    assert worst(replace(FINE, upgrades=replace(on, held=("nvidia-driver-580",))), "driver.unattended_upgrade") == OK
    assert worst(replace(FINE, upgrades=replace(on, blocked=("nvidia-",))), "driver.unattended_upgrade") == OK
    assert worst(replace(FINE, upgrades=replace(on, blocked=("libc6", "(("))), "driver.unattended_upgrade") == WARNING
    assert worst(replace(FINE, upgrades=replace(on, packages=())), "driver.unattended_upgrade") == OK
    assert "apt-mark hold nvidia-driver-580" in of(replace(FINE, upgrades=on), "driver.unattended_upgrade")[0].fix


@given(st.data())
def test_any_reading_may_be_missing(data: st.DataObject) -> None:
    """Whatever could not be read: no check breaks, and none that broke would say so in these words."""
    fields = [name for name in HostReadings.__dataclass_fields__ if name not in ("wanted", "needs", "spaces")]
    missing = data.draw(st.sets(st.sampled_from(fields)))
    found = look(replace(FINE, **{name: Unknown("not read") for name in missing}))
    assert not [finding for finding in found if "broke on what it read" in finding.evidence]
    assert not [finding for finding in found if finding.severity in (ERROR, WARNING)]


@pytest.mark.parametrize(
    ("free", "severity"), [(0, ERROR), ((64 << 20) - 1, ERROR), (64 << 20, WARNING), (GIB - 1, WARNING), (GIB, OK)]
)
def test_room_for_temporary_files(free: int, severity: str) -> None:
    other = DiskSpace("/var/tmp", "/", 7, GIB, GIB, True)
    spaces = {"/tmp": DiskSpace("/tmp", "/tmp", 31, free, 8 * GIB, True), "/var/tmp": other}
    found = of(replace(FINE, spaces=spaces), "disk.space")
    assert [one.severity for one in found if "files in /tmp" in one.summary] == [severity]


def test_temporary_files_that_cannot_be_looked_at_are_unknown() -> None:
    spaces = {"/tmp": Unknown("/tmp: Stale file handle")}
    assert worst(replace(FINE, spaces=spaces), "disk.space") == UNKNOWN


def test_where_nothing_is_declared_nothing_of_cards_is_asked() -> None:
    nothing = HostReadings(cards_matter=False)
    found = [one for one in look(nothing) if one.id.split(".")[0] in ("driver", "cards", "fabric", "cuda")]
    assert {one.severity for one in found} == {OK}
    assert worst(HostReadings(), "cards.lost") == UNKNOWN
