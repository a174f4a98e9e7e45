# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Fetches a revision of a model with huggingface_hub of the installation that will load it, as the service user.

The token reaches it in a file that the user alone can read, never on a command line.
"""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from . import hub_download
from .checks.reading import CouldNotTell
from .engine_images import complaint, human
from .environments import ENVIRONMENTS_DIR
from .errors import EngineError
from .long_command import TookTooLong, Who, run_long
from .model_cache import Wanted, cache_of

RUN_DIR = "/run/sglang"
# Where a container finds the token.
_TOKEN = "/run/hf_token"
# What a server's environment says and what a download is to find out for itself.
_NOT_TAKEN_OVER = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_TOKEN_PATH", "HF_DATASETS_OFFLINE")


@dataclass(frozen=True)
class Place:
    """What fetches, and into where: the environment on the host, or an image of an engine."""

    instance: str
    user: str
    environment: Mapping[str, str]
    # The interpreter of the environment; for an image its name there.
    python: str
    engine: str = ""
    image: str = ""
    container_user: str = ""
    token: str = ""
    keeps: Sequence[int] = field(default=())

    @property
    def cache(self) -> str:
        return cache_of(self.environment)

    @property
    def variables(self) -> dict[str, str]:
        taken = {name: value for name, value in self.environment.items() if name not in _NOT_TAKEN_OVER}
        return {**taken, "HF_HUB_DISABLE_PROGRESS_BARS": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}

    @property
    def container(self) -> str:
        return f"sglang-prefetch-{self.instance}"


def python_of(desired: Mapping[str, Any]) -> str:
    """The interpreter of an instance without a container."""
    environment = (desired.get("native") or {}).get("environment")
    if environment:
        return f"{environment}/bin/python"
    argv = desired.get("argv") or ()
    return str(argv[0]) if argv else f"{ENVIRONMENTS_DIR}/{desired.get('version')}/bin/python"


def place_of(desired: Mapping[str, Any], keeps: Sequence[int] = ()) -> Place:
    """From the desired state of an instance."""
    environment = {str(name): str(value) for name, value in (desired.get("environment") or {}).items()}
    token = str((desired.get("credentials") or {}).get("hf_token") or "")
    user = str(desired.get("user") or "sglang")
    container = desired.get("container")
    if not container:
        return Place(str(desired["instance"]), user, environment, python_of(desired), token=token, keeps=keeps)
    return Place(
        instance=str(desired["instance"]),
        user=user,
        environment=environment,
        python=str(container.get("python") or "python3"),
        engine=str(container["engine"]),
        image=str(container["run_image"]),
        container_user=str(container.get("user") or ""),
        token=token,
        keeps=keeps,
    )


@dataclass(frozen=True)
class Fetched:
    """What a download brought."""

    commit: str
    bytes: int
    notes: tuple[str, ...] = ()


def fetch(wanted: Wanted, place: Place, limit_s: float) -> Fetched:
    """Download what of the revision is missing. Raises EngineError."""
    with contextlib.ExitStack() as held:
        files = held.enter_context(_files(place))
        question = json.dumps([wanted.path, wanted.revision, list(wanted.ignored)])
        words = ["-I", "-c", _script(), question]
        if place.engine:
            held.callback(_remove_container, place)
            argv = [*_container(place, files), *words]
            who = Who(keeps=place.keeps)
        else:
            argv = [place.python, *words]
            who = _who(place, files)
        try:
            output = run_long(argv, limit_s, who)
        except TookTooLong as late:
            raise EngineError(
                "model.fetch",
                f"{wanted} was not fetched after {limit_s:g} s and the download was ended (it said: {late}). "
                "What runs was not touched. Next step: run again, whole files are not fetched twice; or give it more "
                "time with timeout_s",
            ) from None
        except CouldNotTell as error:
            raise EngineError("model.fetch", f"{wanted} was not fetched: {error}") from None
    answer = _answer(output.stdout)
    if answer is None:
        raise EngineError(
            "model.fetch",
            f"{wanted} was not fetched: {place.python}{' in ' + place.image if place.image else ''} ended with status "
            f"{output.code}: {complaint(output)}. What runs was not touched",
        )
    if answer.get("problem"):
        raise _problem(wanted, place, answer)
    untold = int(answer.get("untold") or 0)
    notes = (
        [f"the hub does not tell the size of {untold} files, so the disk was not checked for them"] if untold else []
    )
    return Fetched(str(answer["commit"]), int(answer["bytes"]), tuple(notes))


def _script() -> str:
    """The text of hub_download, also where a module runs from an archive."""
    loader = hub_download.__loader__
    text = loader.get_source(hub_download.__name__)  # type: ignore[union-attr]
    return str(text)


def _answer(text: str) -> dict[str, Any] | None:
    for line in reversed(text.strip().splitlines()):
        with contextlib.suppress(ValueError):
            found = json.loads(line)
            if isinstance(found, dict):
                return found
    return None


@dataclass(frozen=True)
class _Files:
    """Files that are there for one download: the token, and a container's variables."""

    token: str = ""
    variables: str = ""


@contextlib.contextmanager
def _files(place: Place) -> Iterator[_Files]:
    os.makedirs(RUN_DIR, mode=0o755, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="prefetch-", dir=RUN_DIR) as folder:
        uid, gid = _ids(place)
        token = variables = ""
        if place.token:
            token = os.path.join(folder, "hf_token")
            try:
                with open(place.token, encoding="utf-8") as handle:
                    _write(token, handle.read(), uid, gid)
            except OSError as error:
                raise EngineError(
                    "model.token",
                    f"{place.token} cannot be read: {error.strerror}. Next step: run the role sglang_server again, "
                    "which writes it from sglang_server_hf_token",
                ) from None
        if place.engine:
            variables = os.path.join(folder, "variables")
            lines = {**place.variables, **({"HF_TOKEN_PATH": _TOKEN} if token else {})}
            # Such a file has no way to write a line break.
            text = "".join(f"{name}={value}\n" for name, value in lines.items() if "\n" not in value)
            _write(variables, text, 0, 0)
        os.chown(folder, uid, gid)
        yield _Files(token, variables)


def _write(path: str, text: str, uid: int, gid: int) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o400)
    with open(descriptor, "w", encoding="utf-8") as handle:
        if os.geteuid() == 0:
            os.fchown(descriptor, uid, gid)
        handle.write(text)


def _ids(place: Place) -> tuple[int, int]:
    if os.geteuid() != 0:
        return os.geteuid(), os.getegid()
    uid, _colon, gid = place.container_user.partition(":")
    if uid.isdigit():
        return int(uid), int(gid) if gid.isdigit() else int(uid)
    try:
        entry = pwd.getpwnam(place.user)
    except KeyError:
        raise EngineError(
            "model.user", f"there is no user {place.user} on this host. Next step: run the role sglang_host"
        ) from None
    return entry.pw_uid, entry.pw_gid


def _who(place: Place, files: _Files) -> Who:
    uid, gid = _ids(place)
    variables = {**place.variables, **({"HF_TOKEN_PATH": files.token} if files.token else {})}
    if os.geteuid() != 0:
        return Who(environment=variables, keeps=place.keeps)
    return Who(uid, gid, os.getgrouplist(place.user, gid), variables, place.keeps)


def _container(place: Place, files: _Files) -> list[str]:
    """The command of an engine up to the interpreter. As small as it can be: it needs the network and the cache."""
    home = place.environment.get("HF_HOME") or os.path.dirname(place.cache)
    mounts = dict.fromkeys((home, place.cache))
    uid, gid = _ids(place)
    words = [place.engine, "run", "--rm", "--pull=never", f"--name={place.container}", "--network=host"]
    words += [
        f"--user={uid}:{gid}",
        "--cap-drop=all",
        "--security-opt=no-new-privileges",
        "--security-opt=label=disable",
    ]
    words += ["--log-driver=none", f"--env-file={files.variables}", "--env=HOME=/tmp"]
    for path in mounts:
        if not any(path.startswith(other + "/") for other in mounts):
            words += ["--volume", f"{path}:{path}"]
    if files.token:
        words += ["--volume", f"{files.token}:{_TOKEN}:ro"]
    return [*words, f"--entrypoint={place.python}", place.image]


def _remove_container(place: Place) -> None:
    """A container whose command was ended may live on; of one that has ended nothing is left."""
    with contextlib.suppress(TookTooLong, CouldNotTell):
        run_long([place.engine, "rm", "--force", place.container], 30)


def _problem(wanted: Wanted, place: Place, answer: Mapping[str, Any]) -> EngineError:
    said = str(answer.get("said") or "nothing").rstrip(".")
    names = set(map(str, answer.get("names") or ()))
    token = "sglang_server_hf_token, whose owner may read it" + (
        "" if place.token else ", which is not declared for this instance"
    )
    if answer["problem"] == "disk":
        missing, free = int(answer["bytes"]), int(answer["free_bytes"])
        return EngineError(
            "model.disk",
            f"{wanted} needs {human(missing)} more in {place.cache}, and {human(free)} are free. Nothing was fetched, "
            "and what runs was not touched. Next step: make room there, or have sglang_server_hf_home on a larger disk",
            needed_bytes=missing,
            free_bytes=free,
        )
    if answer.get("errno") == 28 or "no space left on device" in said.lower():
        kind, way = "model.disk", f"make room in {place.cache}, then run again: whole files are not fetched twice"
    elif "GatedRepoError" in names:
        kind, way = "model.unauthorized", f"ask for access on the model's page, and give {token}"
    elif "RevisionNotFoundError" in names:
        kind, way = "model.no_such_revision", "see the commits and tags of the model, and name one of them"
    elif "RepositoryNotFoundError" in names or "401" in said or "403" in said:
        kind, way = "model.unauthorized", f"correct the name; for a model that is not public give {token}"
    elif names & {"ModuleNotFoundError", "ImportError"}:
        kind, way = "model.fetch", "use an installation of SGLang with huggingface_hub"
    elif "PermissionError" in names:
        kind, way = "model.fetch", f"let the user {place.user} write to {place.cache}"
    else:
        kind = "model.unreachable"
        way = "see whether the host reaches the hub (HF_ENDPOINT and proxies are taken from the instance's environment)"
    return EngineError(
        kind,
        f"{wanted} was not fetched: {said}. What runs was not touched. Next step: {way}; or put the files there "
        "yourself and declare their folder as the model",
    )
