"""Machines from recorded readings: cards, capacity, kind, and what they mean for a start."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from ansible_collections.serving.sglang.plugins.module_utils import (
    gpu_readings,
    gpu_report,
    host_memory_reader,
    machine,
    memory_findings,
    nvidia_smi_reader,
    nvml_reader,
)
from ansible_collections.serving.sglang.plugins.module_utils.machine import Card, Host, Process, Readings
from ansible_collections.serving.sglang.plugins.module_utils.memory_arguments import read_arguments
from ansible_collections.serving.sglang.plugins.module_utils.memory_releases import memory_release_for

DATA = Path(__file__).resolve().parents[3] / "data"
GIB = 1 << 30
RELEASE = memory_release_for("0.5.22")
HOST = Host(total_bytes=128 * GIB, available_bytes=120 * GIB)
CASES = {
    case["id"]: case["given"]
    for name in ("memory", "unified")
    for case in yaml.safe_load((DATA / "cases" / f"{name}.yml").read_text(encoding="utf-8"))
}


class NvmlError(Exception):
    def __init__(self, value: str) -> None:
        super().__init__(value)
        self.value = value


class RecordedNvml:
    """The calls of pynvml, answered from a recording. Error codes are their own names."""

    NVML_TEMPERATURE_GPU = 0
    NVML_CLOCK_GRAPHICS, NVML_CLOCK_SM, NVML_CLOCK_MEM = 0, 1, 2

    def __init__(self, name: str) -> None:
        self.data = json.loads((DATA / "nvml" / f"{name}.json").read_text(encoding="utf-8"))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("NVML_ERROR"):
            return name
        raise AttributeError(name)

    def answer(self, value: Any) -> Any:
        if isinstance(value, dict) and "error" in value:
            raise NvmlError(value["error"])
        return value

    def nvmlInit(self) -> None:
        self.answer(self.data.get("init"))

    def nvmlShutdown(self) -> None:
        pass

    def nvmlSystemGetDriverVersion(self) -> Any:
        return self.data["driver"].encode()

    def nvmlSystemGetCudaDriverVersion(self) -> Any:
        return self.data["cuda"]

    def nvmlDeviceGetCount(self) -> int:
        return len(self.data["cards"])

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Any:
        card = self.data["cards"][index]
        self.answer(card.get("handle"))
        return card

    def nvmlDeviceGetMemoryInfo(self, card: Any) -> Any:
        return SimpleNamespace(**self.answer(card["memory"]))

    def nvmlDeviceGetUUID(self, card: Any) -> Any:
        return card["uuid"]

    def nvmlDeviceGetName(self, card: Any) -> Any:
        return card["name"]

    def nvmlDeviceGetCudaComputeCapability(self, card: Any) -> Any:
        return card["capability"]

    def nvmlDeviceGetPciInfo(self, card: Any) -> Any:
        return SimpleNamespace(busId=card["bus"].encode())

    def nvmlDeviceGetMigMode(self, card: Any) -> Any:
        return self.answer(card["mig"])

    def nvmlDeviceGetTemperature(self, card: Any, _kind: int) -> Any:
        return card["temperature"]

    def nvmlDeviceGetClockInfo(self, card: Any, kind: int) -> Any:
        return self.answer(card["clocks"][kind][0])

    def nvmlDeviceGetMaxClockInfo(self, card: Any, kind: int) -> Any:
        return self.answer(card["clocks"][kind][1])

    def nvmlDeviceGetComputeRunningProcesses(self, card: Any) -> Any:
        return [SimpleNamespace(pid=pid, usedGpuMemory=used) for pid, used in card["processes"]]

    def nvmlDeviceGetGraphicsRunningProcesses(self, card: Any) -> Any:
        return []


def readings(name: str, host: Host = HOST, **more: Any) -> Readings:
    cards, driver, cuda = nvml_reader.read(RecordedNvml(name))
    return Readings("nvml", cards, host, driver, cuda, **more)


def smi(name: str) -> tuple[Card, ...]:
    return nvidia_smi_reader.parse((DATA / "nvidia_smi" / f"{name}.csv").read_text(encoding="utf-8"))[0]


def capacity(read: Readings, version: str = "0.5.22", platform: str = "cuda", **environment: str) -> Any:
    return machine.capacity_of(read, platform, memory_release_for(version), environment)


def test_an_h200_through_both_sources() -> None:
    read = readings("h200")
    card, same = read.cards[0], smi("h200")[0]
    assert (read.driver, read.cuda) == ("580.159.04", "13.0")
    assert (card.name, card.uuid, card.bus, card.total_mib) == (same.name, same.uuid, same.bus, same.total_mib)
    assert card.compute_major == same.compute_major == 9
    assert card.free_mib == pytest.approx(same.free_mib, abs=1)
    assert (card.clocks_mhz["graphics_max"], card.temperature_c) == (1980, 32)
    assert machine.kind_of(read).kind == "dedicated"
    assert capacity(read).mib == 143771


@pytest.mark.parametrize("source", ["nvml", "gb10", "gb10-old"])
def test_a_gb10_has_unified_memory_and_no_error(source: str) -> None:
    given = CASES["nvml-not-supported-is-unified"]
    host = Host(total_bytes=given["mem_total_kb"] * 1024, available_bytes=112 * GIB)
    cards = readings("gb10").cards if source == "nvml" else smi(source)
    read = Readings("nvml", cards, host, smi_totals=(given["nvidia_smi_memory"],), cuda_totals_mib=(124610.0,))
    assert [card.problem for card in cards] == [""]
    kind = machine.kind_of(read)
    assert kind.kind == "unified"
    assert "121.7 GiB" in kind.evidence[0]
    assert capacity(read).mib == 124610
    assert "CUDA" in capacity(read).source
    without = Readings("nvml", cards, host, smi_totals=("[N/A]",))
    assert capacity(without).mib == given["mem_total_kb"] // 1024


@pytest.mark.parametrize("name", ["lost", "lost-late"])
def test_a_lost_card_is_never_taken_for_an_integrated_one(name: str) -> None:
    read = readings(name)
    assert len(read.broken) == 1
    assert "lost" in read.broken[0].problem
    assert machine.kind_of(read).kind == ("dedicated" if name == "lost" else "unknown")
    assert not any(machine.is_integrated(card) for card in read.cards)


def test_a_lost_card_in_nvidia_smi() -> None:
    card = smi("lost")[0]
    assert "lost" in card.problem
    assert not machine.is_integrated(card)


@pytest.mark.parametrize(("name", "status"), [("mismatch", machine.DRIVER_MISMATCH), ("no-driver", machine.NO_DRIVER)])
def test_no_driver_and_the_wrong_one(name: str, status: str) -> None:
    with pytest.raises(nvml_reader.NvmlUnavailable) as raised:
        nvml_reader.read(RecordedNvml(name))
    assert raised.value.status == status
    assert machine.kind_of(Readings("none", (), HOST)).kind == "unknown"
    assert capacity(Readings("none", (), HOST, smi_error="nvidia-smi failed")).mib is None


@pytest.mark.parametrize(
    ("said", "status"),
    [
        ("Failed to initialize NVML: Driver/library version mismatch", machine.DRIVER_MISMATCH),
        ("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.", machine.NO_DRIVER),
        ("Unable to determine the device handle for GPU0: GPU is lost.", machine.LOST),
        ("No devices were found", machine.NO_DRIVER),
        ("Insufficient Permissions", machine.NO_PERMISSION),
        ("something else", machine.ERROR),
    ],
)
def test_what_nvidia_smi_says_when_it_fails(said: str, status: str) -> None:
    assert nvidia_smi_reader.failure(said) == status


def test_a_shared_card_by_its_processes() -> None:
    read = readings("l4-shared")
    kind = machine.kind_of(read)
    assert kind.kind == "shared"
    assert len(kind.evidence) == 1
    assert "pid 4242" in kind.evidence[0]
    assert "13000 MiB" in kind.evidence[0]
    assert machine.kind_of(read, ours=[4242]).kind == "dedicated"
    assert machine.kind_of(read, ours=[4242], shared=True).kind == "shared"
    assert machine.neighbours_mib(read.cards[0], ours=[4242]) == 100


def test_a_card_under_mig_is_not_integrated() -> None:
    read = readings("a100-mig")
    assert read.cards[0].mig
    assert machine.kind_of(read).kind == "dedicated"
    without = Readings("nvml", read.cards, HOST, smi_totals=("[N/A]",), cuda_totals_mib=(9856.0, 19968.0))
    assert capacity(without).mib == 9856


def test_the_smallest_card_of_the_host_counts() -> None:
    cards = (Card(0, total_mib=81559.0), Card(1, total_mib=23034.0))
    found = capacity(Readings("nvml", cards, HOST, smi_totals=("81559", "23034", "[N/A]")))
    assert found.mib == 23034
    assert "smallest" in found.source
    failed = Readings("nvml", cards, HOST, smi_error="exit code 9", cuda_totals_mib=(81000.0,))
    assert capacity(failed).mib == 81000
    assert capacity(Readings("nvml", cards, HOST)).mib == 23034, "without nvidia-smi's lines the cards are asked"


def test_a_cpu_is_its_numa_node_or_its_limit() -> None:
    host = Host(64 * GIB, 60 * GIB, limit_bytes=16 * GIB, numa_node_bytes=(30 * GIB, 34 * GIB))
    read = Readings("none", (), host)
    assert capacity(read, "0.5.22", "cpu").mib == 30 * 1024
    assert capacity(read, "0.5.23", "cpu").mib == 8 * 1024
    assert capacity(read, "0.5.23", "cpu", SGLANG_CPU_OMP_THREADS_BIND="0-3").mib is None


def test_readings_survive_the_way_through_ansible() -> None:
    read = readings("l4-shared", smi_totals=("23034", "23034"))
    again = machine.readings_from(json.loads(json.dumps(machine.as_dict(read))))
    assert again == read


def test_unbalanced_cards() -> None:
    free = CASES["unbalanced-cards"]["free_gib_per_rank"]
    cards = (Card(0, uuid="GPU-a"), Card(1, uuid="GPU-b", processes=(Process(9, "python", "alice", 3000.0),)))
    found = memory_findings.unbalanced_cards(free, cards)
    assert found is not None
    assert (found.id, found.severity) == ("memory.unbalanced_cards", "error")
    assert "card 1 (GPU-b) has 8.88 GiB free, below 0.9 x 11.90 = 10.71" in found.summary
    assert "python (pid 9, alice): 2.93 GiB" in found.evidence
    tolerated = memory_findings.unbalanced_cards(free, (), {"SGLANG_ENABLE_TP_MEMORY_INBALANCE_CHECK": "0"})
    assert tolerated is not None
    assert tolerated.severity == "warning"
    assert memory_findings.unbalanced_cards([10.0, 9.0]) is None
    assert memory_findings.unbalanced_cards([1.0]) is None


def test_another_process_grew() -> None:
    given = CASES["another-process-grew"]
    found = memory_findings.another_process_grew(
        given["started_with_free_gib"],
        given["now_free_gib"],
        given["our_processes_gib"],
        given["foreign_processes_gib"],
    )
    assert [finding.id for finding in found] == ["memory.another_process_grew", "memory.lower_the_fraction"]
    assert "8.9 GiB" in found[0].summary


def test_the_limit_that_holds_is_the_control_groups() -> None:
    given = CASES["host-memory-limit-not-host-memory"]
    host = Host(
        given["mem_total_gib"] * GIB, given["mem_total_gib"] * GIB, limit_bytes=given["cgroup_memory_max_gib"] * GIB
    )
    arguments = read_arguments({"enable_hierarchical_cache": True, "hicache_size": given["hicache_gib_per_worker"]})
    found = memory_findings.host_limit(host, arguments, given["tp"])
    assert found is not None
    assert found.severity == "error"
    assert "4 x 20 = 80 GiB" in found.summary
    assert "above 64 GiB" in found.summary
    assert "the limit of the control group" in found.evidence
    free = memory_findings.host_limit(Host(1007 * GIB, 900 * GIB), arguments, 4)
    assert free is None
    tight = memory_findings.host_limit(Host(1007 * GIB, 900 * GIB, limit_bytes=2 * GIB), read_arguments({}), 1)
    assert tight is not None
    assert tight.severity == "error"
    cold = memory_findings.host_limit(Host(1007 * GIB, 900 * GIB, limit_bytes=6 * GIB), read_arguments({}), 1)
    assert cold is not None
    assert (cold.id, cold.severity) == ("memory.host_limit_cold", "warning")


def test_page_cache_counts_as_free() -> None:
    given = CASES["page-cache-counts-as-used"]
    host = Host(
        int(given["mem_total_gib"] * GIB),
        int(given["mem_available_gib"] * GIB),
        free_bytes=int(given["mem_free_gib"] * GIB),
    )
    found = memory_findings.unified_memory(host, None)
    assert [finding.id for finding in found] == ["memory.page_cache"]
    assert "86.0 GiB are free for SGLang" in found[0].summary
    assert "see 48.0 GiB" in found[0].summary


def test_shared_memory_comes_out_of_the_same_pool() -> None:
    given = CASES["shm-from-the-same-pool"]
    host = Host(int(given["mem_total_gib"] * GIB), 110 * GIB)
    found = memory_findings.unified_memory(host, given["fraction"], given["shm_size_gib"])
    assert [finding.id for finding in found] == ["memory.shm_same_pool"]
    assert found[0].severity == "warning"
    assert "121.7 - 0.7 x 121.7 - 64 = -27.5 GiB" in found[0].evidence


def test_pinned_pages_refuse_a_start() -> None:
    given = CASES["pinned-pages-cannot-be-reclaimed"]
    host = Host(
        int(121.7 * GIB), int(given["mem_available_gib"] * GIB), locked_bytes=int(given["shmem_mlocked_gib"] * GIB)
    )
    found = memory_findings.unified_memory(host, 0.69)
    assert [finding.severity for finding in found] == ["error"]
    assert "61.5 GiB" in found[0].summary
    assert "again at once fails again" in found[0].evidence


def test_meminfo() -> None:
    text = "MemTotal:       127600748 kB\nMemAvailable:   118000000 kB\nHugePages_Total:       0\nMlocked: 12 kB\n"
    assert host_memory_reader.parse_meminfo(text) == {
        "MemTotal": 127600748 * 1024,
        "MemAvailable": 118000000 * 1024,
        "HugePages_Total": 0,
        "Mlocked": 12 * 1024,
    }
    assert host_memory_reader.parse_meminfo("Node 1 MemTotal:  2048 kB\n") == {"MemTotal": 2048 * 1024}


def test_this_host_can_be_read() -> None:
    host = host_memory_reader.read()
    assert host.total_bytes >= host.available_bytes > 0


def test_both_sources_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> Any:
        raise nvml_reader.NvmlUnavailable("no_library", "no pynvml")

    monkeypatch.setattr(nvml_reader, "load", missing)
    monkeypatch.setenv("PATH", "/nonexistent")
    answer = gpu_report.report({"version": "0.5.22", "instance": "main"})
    assert answer["source"] == "none"
    assert answer["kind"]["kind"] == "unknown"
    assert [problem["source"] for problem in answer["problems"]] == ["nvml", "nvidia-smi"]


def test_nvidia_smi_as_the_second_source(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def missing() -> Any:
        raise nvml_reader.NvmlUnavailable("no_library", "no pynvml")

    program = tmp_path / "nvidia-smi"
    program.write_text(
        "#!/bin/sh\ncase $1 in\n"
        f"*compute-apps*) echo 'GPU-7cfdba81-d84f-7ccf-bf33-65bd72540dcb, 1, /usr/bin/python, 2048' ;;\n"
        "*gpu=memory.total) echo 143771 ;;\n"
        f"*) cat {DATA / 'nvidia_smi' / 'h200.csv'} ;;\nesac\n",
        encoding="utf-8",
    )
    program.chmod(0o755)
    monkeypatch.setattr(nvml_reader, "load", missing)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    read = gpu_readings.read()
    assert read.source == "nvidia-smi"
    assert read.smi_totals == ("143771",)
    assert read.cards[0].processes[0].used_mib == 2048
    answer = gpu_report.conclude(read, {"version": "0.5.22"})
    assert answer["kind"]["kind"] == "shared"
    assert answer["findings"][0]["id"] == "memory.foreign_process"
    assert answer["capacity"]["mib"] == 143771
