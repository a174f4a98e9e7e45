# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The readers of a host: recorded texts, bad ones, this machine's own /proc, and tools that hang."""

from __future__ import annotations

import contextlib
import ctypes
import json
import mmap
import os
import socket
import subprocess
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.serving.sglang.plugins.module_utils import machine, nvml_reader
from ansible_collections.serving.sglang.plugins.module_utils.checks import (
    card_health,
    driver_readings,
    host_readings,
    kernel_log,
    process_scan,
    service_readings,
    shm_checks,
    wanted,
)
from ansible_collections.serving.sglang.plugins.module_utils.checks.process_scan import ProcessScan, ShmFile
from ansible_collections.serving.sglang.plugins.module_utils.checks.reading import (
    CouldNotTell,
    Output,
    Reader,
    Unknown,
    gather,
)

DATA = Path(__file__).resolve().parents[4] / "data" / "host"


def text(name: str) -> str:
    return (DATA / name).read_text(encoding="utf-8", errors="replace")


# The driver


@pytest.fixture
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty /sys and /proc/driver, to be filled by a test."""
    (tmp_path / "module").mkdir()
    (tmp_path / "pci").mkdir()
    monkeypatch.setattr(driver_readings, "MODULES", str(tmp_path / "module"))
    monkeypatch.setattr(driver_readings, "PCI_DEVICES", str(tmp_path / "pci"))
    monkeypatch.setattr(driver_readings, "NVRM_VERSION", str(tmp_path / "version"))
    return tmp_path


@pytest.mark.parametrize(("name", "version"), [("nvrm-proprietary.txt", "570.124.06"), ("nvrm-open.txt", "580.95.05")])
def test_kernel_module(system: Path, name: str, version: str) -> None:
    (system / "version").write_text(text(name), encoding="utf-8")
    assert driver_readings.read_kernel_module().version == version


def test_kernel_module_from_sysfs_and_nouveau(system: Path) -> None:
    assert driver_readings.read_kernel_module().version is None
    (system / "module" / "nouveau").mkdir()
    assert driver_readings.read_kernel_module().nouveau
    (system / "module" / "nvidia").mkdir()
    with pytest.raises(CouldNotTell, match="is loaded"):
        driver_readings.read_kernel_module()
    (system / "module" / "nvidia" / "version").write_text("580.95.05\n", encoding="utf-8")
    assert driver_readings.read_kernel_module().version == "580.95.05"


@pytest.mark.parametrize("name", ["garbled.txt", "empty.txt"])
def test_bad_version_files_are_unknown(system: Path, name: str) -> None:
    (system / "version").write_bytes((DATA / name).read_bytes())
    with pytest.raises(CouldNotTell, match="holds no version"):
        driver_readings.read_kernel_module()
    (system / "version").unlink()
    (system / "module" / "nvidia").mkdir()
    (system / "module" / "nvidia" / "version").write_bytes((DATA / name).read_bytes())
    with pytest.raises(CouldNotTell, match="holds no version"):
        driver_readings.read_kernel_module()


def test_no_sysfs_is_unknown(system: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver_readings, "MODULES", str(system / "gone"))
    monkeypatch.setattr(driver_readings, "PCI_DEVICES", str(system / "gone"))
    with pytest.raises(CouldNotTell, match="is /sys mounted"):
        driver_readings.read_kernel_module()
    with pytest.raises(CouldNotTell):
        driver_readings.read_pci()


def test_pci(system: Path) -> None:
    for address, vendor, kind in (
        ("0000:00:00.0", "0x8086", "0x060000"),
        ("0000:3b:00.0", "0x10de", "0x030200"),
        ("0000:c4:00.0", "0x10de", "0x068000"),
        ("0000:c5:00.0", "0x10de", "0x040300"),
    ):
        (system / "pci" / address).mkdir()
        for name, value in (("vendor", vendor), ("class", kind), ("device", "0x2330")):
            (system / "pci" / address / name).write_text(value + "\n", encoding="utf-8")
    devices = driver_readings.read_pci()
    assert [device.address for device in driver_readings.pci_cards(devices)] == ["0000:3b:00.0"]
    assert [device.address for device in driver_readings.pci_switches(devices)] == ["0000:c4:00.0"]


@pytest.mark.parametrize(
    ("said", "path", "version"),
    [
        ("13.580.159.04", "", "580.159.04"),
        ("12.570.124.06", "/usr/lib/libnvidia-ml.so.570.124.06", "570.124.06"),
        ("", "/usr/lib/libnvidia-ml.so.570.124.06", "570.124.06"),
        ("nonsense", "/usr/lib/libnvidia-ml.so.1", None),
    ],
)
def test_library_version(said: str, path: str, version: str | None) -> None:
    assert driver_readings.library_version(said, path) == version


def test_library_that_is_not_there_or_broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver_readings, "LIBRARY", "libnot-there-at-all.so.1")
    assert driver_readings.read_library().version is None
    broken = tmp_path / "libbroken.so"
    broken.write_bytes(b"no library")
    monkeypatch.setattr(driver_readings, "LIBRARY", str(broken))
    with pytest.raises(CouldNotTell, match="cannot be loaded"):
        driver_readings.read_library()


def test_fabric_manager_version() -> None:
    said = Output(0, "Fabric Manager version is : 580.95.05\n", "")
    assert driver_readings.fabric_manager_version(said) == "580.95.05"
    with pytest.raises(CouldNotTell, match="names no version"):
        driver_readings.fabric_manager_version(Output(1, "", "no permission"))


# The health of the cards


def test_recorded_smi() -> None:
    (card,) = card_health.parse_smi_xml(text("h200-smi-q.xml"))
    assert card.bus == "00000000:00:06.0"
    assert (card.persistence, card.ecc, card.uncorrectable_volatile) == (True, True, 0)
    assert (card.retirement_pending, card.remap_pending, card.remap_failure) == (None, False, False)
    assert (card.mig, card.mig_pending, card.fabric_state, card.recovery_action) == (False, False, None, "")


def test_recorded_smi_says_what_nvml_said() -> None:
    (card,) = card_health.parse_smi_xml(text("h200-smi-q.xml"))
    (nvml,) = json.loads(text("h200-readings.json"))["health"]["cards"]
    assert host_readings.plain(card) == nvml


def test_sick_card_by_smi() -> None:
    sick = text("h200-smi-q.xml")
    for old, new in (
        ("<persistence_mode>Enabled", "<persistence_mode>Disabled"),
        ("<remapped_row_pending>No", "<remapped_row_pending>Yes"),
        ("<remapped_row_failure>No", "<remapped_row_failure>Yes"),
        ("<dram_uncorrectable>0", "<dram_uncorrectable>2"),
        ("<pending_retirement>N/A", "<pending_retirement>Yes"),
        ("<current_mig>Disabled", "<current_mig>Enabled"),
        ("<gpu_recovery_action>None", "<gpu_recovery_action>Reset"),
        ("<state>N/A", "<state>In Progress"),
    ):
        assert old in sick
        sick = sick.replace(old, new)
    (card,) = card_health.parse_smi_xml(sick)
    assert (card.persistence, card.uncorrectable_volatile, card.remap_pending) == (False, 2, True)
    assert (card.remap_failure, card.retirement_pending, card.mig) == (True, True, True)
    assert (card.recovery_action, card.fabric_state) == ("Reset", "In Progress")


@pytest.mark.parametrize(
    "said",
    ["", "garbled \x00", "<nvidia_smi_log></nvidia_smi_log>", text("h200-smi-q.xml")[:900], text("smi-mismatch.txt")],
)
def test_garbled_smi_is_unknown(said: str) -> None:
    with pytest.raises(CouldNotTell):
        card_health.parse_smi_xml(said)


def test_old_smi_and_strange_words_are_unknown_field_by_field() -> None:
    said = "<log><gpu id='0'><persistence_mode>[Unknown Error]</persistence_mode><ecc_mode/></gpu></log>"
    (card,) = card_health.parse_smi_xml(said)
    assert isinstance(card.persistence, Unknown)
    assert "[Unknown Error]" in card.persistence.reason
    assert isinstance(card.remap_pending, Unknown)
    assert isinstance(card.uncorrectable_volatile, Unknown)


@given(st.text(max_size=300))
def test_any_text_of_smi_never_breaks(said: str) -> None:
    for parse in (card_health.parse_smi_xml, card_health.parse_list):
        with contextlib.suppress(CouldNotTell):
            parse(said)


def test_list_with_mig() -> None:
    first, second = card_health.parse_list(text("smi-list-mig.txt"))
    assert (first.index, len(first.mig_uuids), second.mig_uuids) == (0, 2, ())
    with pytest.raises(CouldNotTell, match="cannot be read"):
        card_health.parse_list("Unable to determine the device handle for GPU0: Unknown Error\n")


class NvmlError(Exception):
    def __init__(self, value: str) -> None:
        super().__init__(value)
        self.value = value


class Nvml:
    """The calls of pynvml for one card. An answer that is a string is an error of that name."""

    NVML_FI_DEV_GET_GPU_RECOVERY_ACTION = 230

    class c_nvmlGpuFabricInfo_t(ctypes.Structure):
        _fields_ = (("state", ctypes.c_uint8), ("status", ctypes.c_uint))

    def __init__(self, **answers: Any) -> None:
        self.answers = {
            "nvmlInit": None,
            "nvmlShutdown": None,
            "nvmlDeviceGetCount": 1,
            "nvmlDeviceGetHandleByIndex": 7,
            "nvmlDeviceGetUUID": b"GPU-a",
            "nvmlDeviceGetName": "NVIDIA H100",
            "nvmlDeviceGetPciInfo": SimpleNamespace(busId=b"00000000:3B:00.0"),
            "nvmlDeviceGetPersistenceMode": 0,
            "nvmlDeviceGetEccMode": [1, 1],
            "nvmlDeviceGetTotalEccErrors": 4,
            "nvmlDeviceGetRetiredPagesPendingStatus": "NVML_ERROR_NOT_SUPPORTED",
            "nvmlDeviceGetRemappedRows": (0, 1, 1, 0),
            "nvmlDeviceGetMigMode": "NVML_ERROR_NOT_SUPPORTED",
            "nvmlDeviceGetFieldValues": [SimpleNamespace(nvmlReturn=0, value=SimpleNamespace(uiVal=2))],
            "nvmlDeviceGetGpuFabricInfo": 2,
            **answers,
        }

    def __getattr__(self, name: str) -> Any:
        if name.startswith("NVML_ERROR"):
            return name
        answer = self.answers[name]

        def call(*words: Any) -> Any:
            if isinstance(answer, str) and answer.startswith("NVML_ERROR"):
                raise NvmlError(answer)
            if name == "nvmlDeviceGetGpuFabricInfo":
                words[1]._obj.state = answer
            if name == "nvmlDeviceGetMigDeviceHandleByIndex":
                place = answer[words[1]]
                if isinstance(place, str):
                    raise NvmlError(place)
                return place
            return b"MIG-8" if name == "nvmlDeviceGetUUID" and words[0] == 8 else answer

        return call


def test_health_by_nvml() -> None:
    (card,) = card_health.read_nvml(Nvml()).cards
    assert (card.uuid, card.name, card.bus) == ("GPU-a", "NVIDIA H100", "00000000:3B:00.0")
    assert (card.persistence, card.ecc, card.uncorrectable_volatile) == (False, True, 4)
    assert (card.retirement_pending, card.remap_pending, card.remap_failure, card.mig) == (None, True, False, None)
    assert (card.fabric_state, card.recovery_action) == ("In Progress", "node reboot")


def test_nvml_that_fails() -> None:
    (lost,) = card_health.read_nvml(Nvml(nvmlDeviceGetHandleByIndex="NVML_ERROR_GPU_IS_LOST")).cards
    assert isinstance(lost.persistence, Unknown)
    assert isinstance(lost.fabric_state, Unknown)
    (partly,) = card_health.read_nvml(Nvml(nvmlDeviceGetPersistenceMode="NVML_ERROR_NO_PERMISSION")).cards
    assert isinstance(partly.persistence, Unknown)
    assert partly.ecc is True
    with pytest.raises(CouldNotTell):
        card_health.read_nvml(Nvml(nvmlDeviceGetCount="NVML_ERROR_UNKNOWN"))
    with pytest.raises(CouldNotTell, match="card 0"):
        card_health.list_nvml(Nvml(nvmlDeviceGetHandleByIndex="NVML_ERROR_GPU_IS_LOST"))


def test_mig_devices_by_nvml() -> None:
    (whole,) = card_health.list_nvml(Nvml())
    assert (whole.uuid, whole.mig_uuids) == ("GPU-a", ())
    (divided,) = card_health.list_nvml(
        Nvml(
            nvmlDeviceGetMigMode=[1, 1],
            nvmlDeviceGetMaxMigDeviceCount=2,
            nvmlDeviceGetMigDeviceHandleByIndex=[8, "NVML_ERROR_NOT_FOUND"],
        )
    )
    assert divided.mig_uuids == ("MIG-8",)


def test_mismatch_of_nvml_is_asked_of_nvidia_smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path, "nvidia-smi", f"cat {DATA / 'smi-mismatch.txt'} >&2; exit 18")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(nvml_reader, "load", lambda: Nvml(nvmlInit="NVML_ERROR_LIB_RM_VERSION_MISMATCH"))
    cards = host_readings.read_cards()
    assert isinstance(cards.health, Unknown)
    assert isinstance(cards.listed, Unknown)
    assert isinstance(cards.gpus, machine.Readings)
    assert cards.gpus.problems[0]["status"] == "driver_mismatch"


# The kernel's log


def test_kernel_log() -> None:
    log = kernel_log.parse_kernel_log(text("kernel-fallen-off.log"), "dmesg", uptime_s=9112.0)
    assert log.whole
    first, second = log.xids
    assert (first.number, first.bus, round(first.age_s or 0)) == (79, "0000:3b:00", 100)
    assert second.meaning.action == kernel_log.REBOOT


def test_same_lines_of_two_sources_count_once() -> None:
    ring = kernel_log.parse_kernel_log(text("kernel-fallen-off.log"), "dmesg", uptime_s=9112.0)
    journal = kernel_log.parse_kernel_log(text("kernel-journal.log"), "journalctl", now_s=1764475112.0)
    assert [xid.number for xid in kernel_log.together([ring, journal])] == [79, 154]
    assert round(journal.xids[0].age_s or 0) == 100


def test_recovered_card_is_no_alarm() -> None:
    said = "GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)"
    line = f"[ 9.0] NVRM: Xid (PCI:0000:3b:00): 154, {said}"
    (xid,) = kernel_log.parse_kernel_log(line, "dmesg").xids
    assert xid.meaning.action == kernel_log.NOTE
    (old,) = kernel_log.parse_kernel_log("[ 9.0] NVRM: Xid (0000:03:00): 14, Channel 00000001", "dmesg").xids
    assert (old.number, old.bus) == (14, "0000:03:00")


@pytest.mark.parametrize("said", ["", "\n\n  \n"])
def test_log_without_a_line_is_unknown(said: str) -> None:
    with pytest.raises(CouldNotTell, match="printed no line"):
        kernel_log.parse_kernel_log(said, "journalctl -k")


@given(st.text(max_size=400))
def test_any_log_never_breaks(said: str) -> None:
    with contextlib.suppress(CouldNotTell):
        kernel_log.parse_kernel_log(f"NVRM: Xid ({said}): {said}\n{said}", "dmesg", 1.0, 1.0)


@pytest.mark.parametrize(
    ("logged", "nvml", "same"),
    [
        ("0000:3b:00", "00000000:3B:00.0", True),
        ("0000:3b:00", "0000:3b:00.0", True),
        ("0000:3b:00", "00000000:5E:00.0", False),
        ("0009:01:00", "00000009:01:00.0", True),
        ("0009:01:00", "00000000:01:00.0", False),
        ("", "00000000:01:00.0", False),
    ],
)
def test_bus_addresses(logged: str, nvml: str, same: bool) -> None:
    assert kernel_log.same_bus(logged, nvml) is same


@pytest.mark.parametrize("name", ["dmesg", "journalctl"])
def test_log_that_is_forbidden(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path, name, f"echo '{name}: read kernel buffer failed: Operation not permitted' >&2; exit 1")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    reader = kernel_log.read_dmesg if name == "dmesg" else kernel_log.read_journal
    with pytest.raises(CouldNotTell, match="Operation not permitted"):
        reader()


def program(folder: Path, name: str, script: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    (folder / name).chmod(0o755)


# Processes, ports and /dev/shm of this machine


def test_listener_of_this_process() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        (held,) = process_scan.scan([port], time.time()).listeners
    assert (held.listener.pid, held.listener.address) == (os.getpid(), "127.0.0.1")
    assert held.group


def test_segments_and_who_uses_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "shm"
    folder.mkdir()
    monkeypatch.setattr(process_scan, "SHM", str(folder))
    for name in ("nccl-free", "nccl-open", "nccl-mapped"):
        (folder / name).write_bytes(b"x" * 8192)
    with open(folder / "nccl-open", "rb"), open(folder / "nccl-mapped", "r+b") as file:
        mapped = mmap.mmap(file.fileno(), 0)
        file.close()
        scan = process_scan.scan((), time.time() + 3600)
        mapped.close()
    found = {file.name: file for file in scan.shm}
    assert found["nccl-free"].users == ()
    assert found["nccl-open"].users == (os.getpid(),)
    assert found["nccl-mapped"].users == (os.getpid(),)
    assert found["nccl-free"].bytes >= 8192
    assert found["nccl-free"].age_s > 3500
    assert os.getpid() in scan.alive


def test_proc_that_is_garbled_is_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "net").mkdir()
    monkeypatch.setattr(process_scan, "PROC", str(tmp_path))
    with pytest.raises(CouldNotTell, match="is not there"):
        process_scan.scan([30000], 0.0)
    (tmp_path / "net" / "tcp").write_text("head\n 0: 00000000:XYZ 0:0 0A 0 0 0 0 0 a b c\n", encoding="utf-8")
    with pytest.raises(CouldNotTell, match="cannot be understood"):
        process_scan.scan([30000], 0.0)


def test_guards_by_name_and_by_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for pid, comm, command in (
        ("11", "earlyoom", "/usr/bin/earlyoom"),
        ("12", "python3", "/usr/bin/python3\0/usr/sbin/nohang\0-m"),
        ("13", "python3", "python3\0-c\0pass"),
    ):
        (tmp_path / pid).mkdir()
        (tmp_path / pid / "comm").write_text(comm + "\n", encoding="utf-8")
        (tmp_path / pid / "cmdline").write_text(command, encoding="utf-8")
    monkeypatch.setattr(process_scan, "PROC", str(tmp_path))
    monkeypatch.setattr(process_scan, "SHM", str(tmp_path / "none"))
    assert process_scan.scan((), 0.0).guards == ("earlyoom", "nohang")


OLD = 7200.0


@pytest.mark.parametrize(
    ("file", "alive", "found"),
    [
        (ShmFile("nccl-AbCd12", 1, OLD, 0), set(), True),
        (ShmFile("nccl-AbCd12", 1, OLD, 0, (5,)), set(), False),
        (ShmFile("nccl-AbCd12", 1, 20.0, 0), set(), False),
        (ShmFile("sglang_loads_34f802b1cb57_333994b0.shm", 1, OLD, 0), set(), True),
        (ShmFile("multi_tokenizer_args_4242", 1, OLD, 0), set(), True),
        (ShmFile("multi_tokenizer_args_4242", 1, OLD, 0), {4242}, False),
        (ShmFile("torch_4242_1234_0", 1, OLD, 0), set(), True),
        (ShmFile("cuda.shm.0.10.1", 1, OLD, 0), {16}, False),
        (ShmFile("cuda.shm.0.10.1", 1, OLD, 0), {10}, True),
        (ShmFile("psm_0a1b2c3d", 1, OLD, 0), set(), True),
        (ShmFile("someones-model.bin", 1, OLD, 0), set(), False),
    ],
)
def test_leaked(file: ShmFile, alive: set[int], found: bool) -> None:
    assert bool(shm_checks.leaked(ProcessScan(shm=(file,), alive=frozenset(alive)))) is found


@pytest.mark.parametrize("count", [1, 40])
def test_removal_looks_again(count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The line of the fix removes what nobody uses, and leaves what somebody mapped or opened meanwhile."""
    monkeypatch.setattr(shm_checks, "SHM", str(tmp_path))
    names = ["nccl-mapped", "nccl-open", *(f"nccl-free{number}" for number in range(count))]
    for name in names:
        (tmp_path / name).write_bytes(b"x" * 4096)
        os.utime(tmp_path / name, (time.time() - OLD, time.time() - OLD))
    with open(tmp_path / "nccl-open", "rb"), open(tmp_path / "nccl-mapped", "r+b") as file:
        mapped = mmap.mmap(file.fileno(), 0)
        line = shm_checks.removal([ShmFile(name, 4096, OLD, 0) for name in names])
        subprocess.run(["bash", "-c", line], check=False, timeout=120)
        mapped.close()
    assert sorted(each.name for each in tmp_path.iterdir()) == ["nccl-mapped", "nccl-open"]


def test_leak_among_hidden_processes_is_unknown() -> None:
    readings = host_readings.HostReadings(
        processes=ProcessScan(shm=(ShmFile("nccl-AbCd12", 1, OLD, 0),), hidden="3 processes cannot be looked into")
    )
    (finding,) = shm_checks.leaked_segments.run(readings)
    assert (finding.severity, "cannot be looked into" in finding.evidence) == ("unknown", True)


# Services


def test_services() -> None:
    names = ("nvidia-fabricmanager.service", "chronyd.service", "-.slice")
    found = service_readings.parse_services(text("systemctl-show.txt"), names)
    assert found["nvidia-fabricmanager.service"].exists
    assert not found["nvidia-fabricmanager.service"].active
    assert found["nvidia-fabricmanager.service"].limit("LimitNOFILE") == 1024
    # Asked for by its alias.
    assert found["chronyd.service"].active
    assert found["chronyd.service"].limit("LimitNOFILE") is None
    assert found["-.slice"].values["ManagedOOMSwap"] == "kill"
    with pytest.raises(CouldNotTell):
        found["-.slice"].limit("LimitNOFILE")


@pytest.mark.parametrize("said", ["", text("garbled.txt"), text("systemctl-show.txt")[:100]])
def test_garbled_services_are_unknown(said: str) -> None:
    with pytest.raises(CouldNotTell, match="answered for"):
        service_readings.parse_services(said, ("a.service", "b.service", "c.service"))


def test_no_systemd_is_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service_readings, "SYSTEMD", str(tmp_path / "none"))
    with pytest.raises(CouldNotTell, match="systemd does not run this host"):
        service_readings.read_services(["a.service"])
    with pytest.raises(CouldNotTell, match="systemd does not run this host"):
        service_readings.read_default_limits()


def test_unattended_upgrades() -> None:
    read = service_readings.unattended_upgrades(text("apt-config.txt"), text("dpkg-nvidia.txt"))
    assert read.enabled
    assert read.packages == (
        "libnvidia-compute-570-server",
        "nvidia-driver-570-server-open",
        "nvidia-kernel-common-570-server",
    )
    assert read.exposed == ("libnvidia-compute-570-server", "nvidia-driver-570-server-open")
    more = 'Unattended-Upgrade::Package-Blacklist:: "(lib)?nvidia-";\n'
    assert service_readings.unattended_upgrades(text("apt-config.txt") + more, text("dpkg-nvidia.txt")).exposed == ()
    off = text("apt-config.txt").replace('Unattended-Upgrade "1"', 'Unattended-Upgrade "0"')
    assert not service_readings.unattended_upgrades(off, "").enabled
    with pytest.raises(CouldNotTell):
        service_readings.unattended_upgrades(text("garbled.txt"), "")


def test_dnf_automatic() -> None:
    conf = "[commands]\nupgrade_type = default\napply_updates = yes\n"
    rpm = "nvidia-driver\nnvidia-driver-cuda-libs\nnvidia-container-toolkit\n"
    read = service_readings.dnf_automatic(["dnf-automatic.timer"], conf, rpm, "[main]\n", "")
    assert (read.enabled, read.exposed) == (True, ("nvidia-driver", "nvidia-driver-cuda-libs"))
    excluded = service_readings.dnf_automatic(
        ["dnf-automatic.timer"], conf, rpm, "[main]\nexcludepkgs=nvidia*, x\n", ""
    )
    assert excluded.exposed == ()
    locked = "# by hand\nnvidia-driver-3:580.95.05-1.el9.*\nnvidia-driver-cuda-libs-3:580.95.05-1.el9.*\n"
    assert service_readings.dnf_automatic(["dnf-automatic.timer"], conf, rpm, "", locked).exposed == ()
    download = conf.replace("yes", "no")
    assert not service_readings.dnf_automatic(["dnf-automatic.timer"], download, rpm, "", "").enabled
    assert service_readings.dnf_automatic(["dnf-automatic-install.timer"], download, rpm, "", "").enabled


@pytest.mark.parametrize(
    ("release", "family"),
    [
        ('ID=ubuntu\nID_LIKE=debian\nPRETTY_NAME="Ubuntu 24.04"\n', "debian"),
        ('ID="rocky"\nID_LIKE="rhel centos fedora"\n', "rhel"),
        ("ID=fedora\n", "rhel"),
        ("ID=arch\n", "arch"),
    ],
)
def test_distribution(release: str, family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service_readings, "OS_RELEASE", str(tmp_path / "os-release"))
    (tmp_path / "os-release").write_text(release, encoding="utf-8")
    assert service_readings.read_distribution().family == family
    (tmp_path / "os-release").write_text("", encoding="utf-8")
    with pytest.raises(CouldNotTell, match="names no ID"):
        service_readings.read_distribution()


def test_earlyoom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service_readings, "EARLYOOM_DEFAULTS", str(tmp_path / "earlyoom"))
    assert service_readings.read_earlyoom() == ""
    (tmp_path / "earlyoom").write_text(
        '# EARLYOOM_ARGS="-m 2"\nEARLYOOM_ARGS="-m 5 --avoid \'^x$\'"\n', encoding="utf-8"
    )
    assert service_readings.read_earlyoom() == "-m 5 --avoid '^x$'"
    (tmp_path / "earlyoom").write_text("EARLYOOM_ARGS=-m5\n", encoding="utf-8")
    assert service_readings.read_earlyoom() == "-m5"


def test_clock_of_this_machine_is_told_or_said_to_be_unknown() -> None:
    clock = gather({"clock": Reader(service_readings.read_clock)})["clock"]
    assert clock.reason if isinstance(clock, Unknown) else clock.source


# Everything


def test_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_readings, "MEMINFO", str(tmp_path / "meminfo"))
    said = "MemTotal: 1000 kB\nMemAvailable: 400 kB\nHugePages_Total: 3\nHugePages_Free: 1\nHugepagesize: 100 kB\n"
    (tmp_path / "meminfo").write_text(said + "Shmem: 7 kB\nMlocked: 8 kB\nSwapTotal: 9 kB\n", encoding="utf-8")
    memory = host_readings.read_memory()
    assert (memory.huge_pages, memory.huge_pages_free) == (300 * 1024, 100 * 1024)
    assert (memory.shared, memory.locked, memory.swap_total) == (7 * 1024, 8 * 1024, 9 * 1024)
    (tmp_path / "meminfo").write_bytes((DATA / "garbled.txt").read_bytes())
    with pytest.raises(CouldNotTell, match="names no MemTotal"):
        host_readings.read_memory()


def test_docker_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "daemon.json"
    monkeypatch.setattr(host_readings, "DAEMON_JSON", str(path))
    assert host_readings.read_docker_limits() == {}
    path.write_text('{"default-ulimits": {"memlock": {"Name": "memlock", "Hard": -1, "Soft": -1}}}', encoding="utf-8")
    assert host_readings.read_docker_limits() == {"memlock": -1}
    for bad in ("{", "[]", '{"default-ulimits": {"memlock": 3}}', '{"default-ulimits": 3}'):
        path.write_text(bad, encoding="utf-8")
        with pytest.raises(CouldNotTell, match="cannot be understood"):
            host_readings.read_docker_limits()


def test_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "daemon.json").write_text('{"data-root": "/big/docker"}', encoding="utf-8")
    monkeypatch.setattr(wanted, "DAEMON_JSON", str(tmp_path / "daemon.json"))
    monkeypatch.setattr(wanted, "STORAGE_CONF", str(tmp_path / "none"))
    python = tmp_path / "0.5.22" / "bin" / "python"
    instances = [
        {"name": "a", "python": str(python)},
        {"name": "b", "runtime": "docker", "image": "x:1"},
        {"name": "c", "runtime": "podman", "image": "x:1"},
    ]
    params = {"disk_image_gib": 50, "disk_cache_gib": "?", "disk_needs": [{"path": "/srv/m", "gib": 5}, {"gib": 1}, 7]}
    needs = wanted.disk_needs(params, wanted.read_wanted(instances))
    assert {need.path: need.bytes / wanted.GIB for need in needs} == {
        "/var/cache/sglang": 10,
        str(tmp_path / "0.5.22"): 15,
        "/big/docker": 50,
        "/var/lib/containers/storage": 50,
        "/srv/m": 5,
    }
    assert needs[0].source == "disk_cache_gib: 10 GiB, the default"
    python.parent.mkdir(parents=True)
    python.touch()
    assert str(tmp_path / "0.5.22") not in {need.path for need in wanted.disk_needs({}, wanted.read_wanted(instances))}


@pytest.mark.parametrize(
    "group", ["0::/sglang.slice/sglang-main.slice/x.scope", "12:memory:/sglang.slice/sglang-a_1.slice"]
)
def test_our_slices(group: str) -> None:
    assert host_readings.in_our_slice(group)
    assert not host_readings.in_our_slice("0::/system.slice/sglang-main.service.slice2")


@pytest.mark.parametrize("instances", [None, "x", 3, [1, None, "x"], [{}], [{"arguments": None, "cards": 7}]])
def test_strange_declarations_never_break(instances: Any) -> None:
    for each in wanted.read_wanted(instances):
        assert each.unit


def test_hanging_nvidia_smi_does_not_hang_the_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path, "nvidia-smi", "exec sleep 30")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    # A driver whose NVML hangs too, as it does when a card is stuck.
    monkeypatch.setattr(nvml_reader, "load", lambda: SimpleNamespace(nvmlInit=lambda: time.sleep(30)))
    started = time.monotonic()
    result = host_readings.examine({"instances": [{"name": "main", "version": "0.5.22", "cards": [0]}]})
    assert time.monotonic() - started < 5
    readings = result["readings"]
    for name in ("gpus", "health", "listed"):
        assert "took longer than its limit" in readings[name]["unknown"]
        assert "persistence mode" in readings[name]["unknown"]
    assert "unknown" not in readings["memory"]
    json.dumps(result)


def test_hanging_nvidia_smi_without_nvml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path, "nvidia-smi", "exec sleep 30")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(nvml_reader, "load", no_library)
    started = time.monotonic()
    cards = host_readings.read_cards()
    assert time.monotonic() - started < 3.5
    said = "did not end within"
    assert isinstance(cards.health, Unknown)
    assert said in cards.health.reason
    assert isinstance(cards.listed, Unknown)
    assert said in cards.listed.reason
    assert not isinstance(cards.gpus, Unknown)
    assert not cards.gpus.cards
    assert said in cards.gpus.problems[-1]["text"]


def test_garbled_nvidia_smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path, "nvidia-smi", f"cat {DATA / 'garbled.txt'}")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(nvml_reader, "load", no_library)
    result = host_readings.examine({"instances": [{"name": "main", "version": "0.5.22", "cards": [0]}]})
    assert "unknown" in result["readings"]["listed"]
    assert "unknown" in result["readings"]["health"]
    cards = [finding for finding in result["findings"] if finding["id"].startswith("cards.")]
    assert {finding["severity"] for finding in cards if finding["id"] != "cards.xid"} == {"unknown"}


def no_library() -> Any:
    raise nvml_reader.NvmlUnavailable("no_library", "the Python library nvidia-ml-py is not installed")


def test_mismatch_is_said_by_nvidia_smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path, "nvidia-smi", f"cat {DATA / 'smi-mismatch.txt'} >&2; exit 18")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(nvml_reader, "load", no_library)
    with pytest.raises(CouldNotTell, match="exit code 18"):
        card_health.read_health()


def test_this_machine_in_time() -> None:
    started = time.monotonic()
    result = host_readings.examine({})
    assert time.monotonic() - started < 3
    assert json.loads(json.dumps(result))["findings"]


@pytest.mark.parametrize(
    ("params", "asked"),
    [
        ({"instances": [{"name": "main", "arguments": {"device": "cpu"}}]}, False),
        ({"instances": [{"name": "main"}, {"name": "cpu", "arguments": {"device": "cpu"}}]}, True),
        ({"instances": []}, True),
        ({"instances": [], "only_declared": True}, False),
    ],
)
def test_cards_are_asked_only_where_something_wants_them(params: dict[str, Any], asked: bool) -> None:
    assert host_readings.matters(params, host_readings.read_wanted(params["instances"])) == asked


def hung_smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path, "nvidia-smi", "sleep 30")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

    def unavailable() -> Any:
        raise nvml_reader.NvmlUnavailable(machine.NO_DRIVER, "there is no NVML")

    monkeypatch.setattr(nvml_reader, "load", unavailable)


def test_a_hung_nvidia_smi_costs_the_cards_and_names_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hung_smi(tmp_path, monkeypatch)
    started = time.monotonic()
    read = host_readings.read_host({"instances": [{"name": "main", "port": 30000}]})
    assert time.monotonic() - started < 2.6
    assert isinstance(read.health, Unknown)
    assert "nvidia-smi" in read.health.reason
    assert not isinstance(read.memory, Unknown)
    assert not isinstance(read.spaces["/tmp"], Unknown)


def test_a_host_without_instances_on_cards_does_not_wait_for_nvidia_smi(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hung_smi(tmp_path, monkeypatch)
    found = host_readings.read_host({"instances": [{"name": "main", "arguments": {"device": "cpu"}}]})
    assert found.health == host_readings.NOT_ASKED
