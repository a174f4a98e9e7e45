"""What an instance loads, and what of a revision is in the cache."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.serving.sglang.plugins.module_utils import hub_download
from ansible_collections.serving.sglang.plugins.module_utils.model_cache import (
    IGNORED,
    Wanted,
    cache_of,
    depends_on_hub,
    folder_of,
    look_in_cache,
    wanted_by,
)

COMMIT = "0123456789abcdef0123456789abcdef01234567"
MODEL = Wanted("model", "acme/tiny", "v1")


def desired(path: str = "acme/tiny", revision: str | None = "v1", **args: Any) -> dict[str, Any]:
    return {"model": {"path": path, "revision": revision}, "args": args}


@pytest.mark.parametrize(
    ("state", "names"),
    [
        (desired(), ["model acme/tiny@v1"]),
        (desired(revision=None), ["model acme/tiny"]),
        ({"model": {"path": "acme/tiny"}, "args": {"revision": "v2"}}, ["model acme/tiny@v2"]),
        (desired("/models/x", None), ["model /models/x"]),
        (
            desired(**{"speculative_draft_model_path": "acme/draft", "speculative-draft-model-revision": "v3"}),
            ["model acme/tiny@v1", "draft model acme/draft@v3"],
        ),
        (
            {**desired(), "args": {"tokenizer-path": "acme/words", "revision": "v1"}},
            ["model acme/tiny@v1", "tokenizer acme/words@v1"],
        ),
        (desired(**{"tokenizer-path": "acme/tiny"}), ["model acme/tiny@v1"]),
    ],
)
def test_what_an_instance_loads(state: dict[str, Any], names: list[str]) -> None:
    assert [f"{each.what} {each}" for each in wanted_by(state)] == names


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        (desired(), ""),
        (desired("/models/x", None), ""),
        (desired(revision=None), "model acme/tiny has no revision"),
        (desired(revision="main"), "model acme/tiny has no revision"),
        (desired(**{"speculative-draft-model-path": "acme/draft"}), "draft model acme/draft has no revision"),
        (desired(**{"download-dir": "/scratch"}), "argument 'download-dir' (/scratch) puts weights beside the cache"),
        (desired("/models/x", None, **{"download-dir": "/scratch"}), ""),
        (
            desired(**{"lora-paths": ["one=acme/adapter", "/adapters/two"]}),
            "adapter acme/adapter is taken from the hub",
        ),
        (desired(**{"lora-paths": ["one=/adapters/one"]}), ""),
    ],
)
def test_when_a_start_asks_the_hub(state: dict[str, Any], reason: str) -> None:
    assert depends_on_hub(state) == ([reason] if reason else [])


@pytest.mark.parametrize(
    ("environment", "cache"),
    [
        ({"HF_HOME": "/data/hf"}, "/data/hf/hub"),
        ({"HF_HOME": "/data/hf", "HF_HUB_CACHE": "/data/models"}, "/data/models"),
        ({"HOME": "/var/lib/sglang/main"}, "/var/lib/sglang/main/.cache/huggingface/hub"),
    ],
)
def test_where_the_cache_is(environment: dict[str, str], cache: str) -> None:
    assert cache_of(environment) == cache


def test_weights_are_not_taken_twice() -> None:
    names = ["config.json", "model.safetensors", "pytorch_model.bin", "pytorch_model.bin.index.json", "x/a.pth"]
    assert hub_download.kept(names, IGNORED) == ["config.json", "model.safetensors"]
    without = [name for name in names if name != "model.safetensors"]
    assert hub_download.kept(without, IGNORED) == without[:-1]
    # What is in a folder below is another thing.
    assert "pytorch_model.bin" in hub_download.kept([*without, "unet/model.safetensors"], IGNORED)


class Cache:
    """A cache with one revision, as huggingface_hub lays it out."""

    def __init__(self, path: Path, files: dict[str, str]) -> None:
        self.path = path
        self.folder = Path(folder_of(str(path), MODEL.path))
        self.snapshot = self.folder / "snapshots" / COMMIT
        self.snapshot.mkdir(parents=True)
        (self.folder / "refs").mkdir()
        (self.folder / "refs" / "v1").write_text(COMMIT)
        (self.folder / "blobs").mkdir()
        for number, (name, text) in enumerate(files.items()):
            blob = self.folder / "blobs" / str(number)
            blob.write_text(text)
            (self.snapshot / name).symlink_to(blob)

    def note(self, files: dict[str, int], where: str = hub_download.NOTES) -> None:
        (self.folder / where).mkdir(exist_ok=True)
        entries = {name: {"size": size} for name, size in files.items()} if where == "trees" else files
        (self.folder / where / f"{COMMIT}.json").write_text(json.dumps({"files": entries}))

    def look(self, wanted: Wanted = MODEL) -> str:
        return look_in_cache(str(self.path), wanted).why


INDEX = json.dumps({"weight_map": {"a": "1.safetensors", "b": "2.safetensors"}})


def test_a_revision_is_found_by_its_tag_and_by_its_commit(tmp_path: Path) -> None:
    cache = Cache(tmp_path, {"config.json": "{}", "model.safetensors": "x"})
    for revision in ("v1", COMMIT):
        found = look_in_cache(str(tmp_path), Wanted("model", "acme/tiny", revision))
        assert (found.whole, found.commit, found.bytes, found.sure) == (True, COMMIT, 3, False)
    assert "does not know the revision v2" in cache.look(Wanted("model", "acme/tiny", "v2"))
    assert "is not there" in cache.look(Wanted("model", "acme/tiny", "f" * 40))
    (cache.folder / "refs" / "v1").write_text("no commit")
    assert "does not know the revision v1" in cache.look()


def test_a_list_of_files_decides(tmp_path: Path) -> None:
    cache = Cache(tmp_path, {"config.json": "{}", "model.safetensors": "x"})
    cache.note({"config.json": 2, "model.safetensors": 1})
    (cache.folder / "blobs" / "other.incomplete").write_text("")
    assert cache.look() == ""
    cache.note({"config.json": 2, "model.safetensors": 9, "tokenizer.json": 4})
    assert cache.look() == ("2 of 3 files are missing or not whole (model.safetensors (1 of 9 bytes), tokenizer.json)")


def test_the_list_of_huggingface_hub_counts_for_what_servers_read(tmp_path: Path) -> None:
    cache = Cache(tmp_path, {"config.json": "{}", "model.safetensors": "x"})
    cache.note({"config.json": 2, "model.safetensors": 1, "README.md": 9, "pytorch_model.bin": 9}, "trees")
    assert cache.look() == ""
    cache.note({"config.json": 2, "model.safetensors": 1, "tokenizer.json": 9}, "trees")
    assert "tokenizer.json" in cache.look()


@pytest.mark.parametrize(
    ("files", "more", "why"),
    [
        ({"model.safetensors.index.json": INDEX, "1.safetensors": "", "2.safetensors": ""}, "", ""),
        ({"model.safetensors.index.json": INDEX, "1.safetensors": ""}, "", "1 of 2 files of weights are missing"),
        ({"model.safetensors.index.json": "{", "1.safetensors": ""}, "", "is not JSON"),
        ({"model.safetensors": ""}, "7.incomplete", "a download was cut off (1 files .incomplete"),
        ({"README.md": ""}, "", "has neither weights nor a configuration"),
    ],
)
def test_without_a_list_what_would_not_start_is_found(
    tmp_path: Path, files: dict[str, str], more: str, why: str
) -> None:
    cache = Cache(tmp_path, files)
    if more:
        (cache.folder / "blobs" / more).write_text("")
    assert why in cache.look()
    assert bool(cache.look()) == bool(why)
    for blob in (cache.folder / "blobs").iterdir():
        blob.unlink()
    assert "is a link to a file that is not there" in cache.look()
