# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A desired state as the words of `docker run` and as the lines of a Quadlet. Pure.

One unknown key makes the whole unit of a Quadlet vanish, so only keys of podman 4.4, the first with Quadlets, are used
(pkg/systemd/quadlet/quadlet.go of v4.4.0); everything else goes through PodmanArgs=, which takes options of any age.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .unit_words import CONTINUED, exec_groups, exec_word

# `docker stop` and `podman stop` wait for the grace period and then kill; systemd gives them this much longer.
STOP_MARGIN_S = 30
DOCKER = "/usr/bin/docker"


def _common(desired: Mapping[str, Any]) -> list[str]:
    """What both engines take, and no key of an old Quadlet says."""
    container = desired["container"]
    words = [
        f"--entrypoint={container['python']}",
        f"--workdir=/var/lib/sglang/{desired['instance']}",
        f"--stop-timeout={container['stop_timeout_s']}",
        "--stop-signal=SIGTERM",
        "--pull=never",
        # Both engines' defaults limit processes or take what the image says; a native server has no such limit.
        "--pids-limit=-1",
        "--no-healthcheck",
        # Models and caches keep their labels: relabelling terabytes is not what a start may do.
        "--security-opt=label=disable",
    ]
    if container["ipc"] == "host":
        words.append("--ipc=host")
    else:
        words += ["--ipc=private", f"--shm-size={container['shm_size_bytes']}"]
    return words


def docker_words(desired: Mapping[str, Any]) -> list[str]:
    """The command line of the server's container under docker, in the foreground."""
    return [DOCKER, "run", *_docker_options(desired), desired["container"]["run_image"], *desired["argv"][1:]]


def docker_line(desired: Mapping[str, Any]) -> str:
    """ExecStart= of the docker unit, one option a line so that a diff shows what changed."""
    first, *options = _docker_options(desired)
    head = " ".join([DOCKER, "run", exec_word(first)])
    words = [exec_word(word) for word in (*options, desired["container"]["run_image"])]
    return CONTINUED.join([head, *words, *exec_groups(desired["argv"][1:])])


def _docker_options(desired: Mapping[str, Any]) -> list[str]:
    container = desired["container"]
    words = [
        "--rm",
        f"--name={container['name']}",
        f"--cgroup-parent={container['cgroup_parent']}",
        "--network=host",
        f"--user={container['user']}",
        "--cap-drop=ALL",
        "--security-opt=no-new-privileges",
        # What the unit prints is in the journal already.
        "--log-driver=none",
        "--init=false",
        "--ulimit=memlock=-1:-1",
        "--ulimit=nofile=1048576:1048576",
        *_common(desired),
    ]
    words += [f"--device={device}" for device in container["devices"]]
    if container["gpus"]:
        words.append(f"--gpus={container['gpus']}")
    for mount in container["mounts"]:
        read_only = ",readonly" if mount["read_only"] else ""
        words.append(f"--mount=type=bind,source={mount['source']},target={mount['target']}{read_only}")
    words += [f"--env={name}={value}" for name, value in desired["environment"].items()]
    return [*words, *container["engine_arguments"]]


def quadlet_lines(desired: Mapping[str, Any]) -> list[str]:
    """The section [Container] of the instance's Quadlet."""
    container = desired["container"]
    user, _colon, group = container["user"].partition(":")
    lines = [
        f"Image={container['run_image']}",
        f"ContainerName={container['name']}",
        "Network=host",
        f"User={user}",
        f"Group={group}",
        "DropCapability=all",
        "NoNewPrivileges=true",
        "RunInit=false",
    ]
    lines += [f"AddDevice={device}" for device in container["devices"]]
    lines += [
        "Volume=" + _plain(f"{mount['source']}:{mount['target']}{':ro' if mount['read_only'] else ''}")
        for mount in container["mounts"]
    ]
    lines += [f"Environment={exec_word(f'{name}={value}')}" for name, value in desired["environment"].items()]
    # The unit's own limits (Limit*=) hold in the container, and its output goes straight to the unit's journal.
    words = ["--log-driver=passthrough", "--ulimit=host", *_common(desired), *container["engine_arguments"]]
    lines += [f"PodmanArgs={exec_word(word)}" for word in words]
    return [*lines, "Exec=" + CONTINUED.join(exec_groups(desired["argv"][1:]))]


def _plain(text: str) -> str:
    """A value that podman does not split; systemd still expands what podman passes on."""
    return text.replace("%", "%%").replace("$", "$$")
