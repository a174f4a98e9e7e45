"""The YAML that programs write, read without PyYAML: as PyYAML reads it, or refused."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.serving.sglang.plugins.module_utils.checks.yaml_subset import NotThisSubset, parse

WORDS = st.one_of(
    st.text(max_size=12),
    st.sampled_from(
        ["0.5.0", "0.7", "nvidia.com/gpu", "0", "yes", "~", "null", "a: b", "x::/y", "/dev/char/195:0 rwm", "- x", "#"]
    ),
    st.from_regex(r"[a-zA-Z0-9/_.:= -]{0,20}", fullmatch=True),
)
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(10**6), 10**6), WORDS),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(WORDS, inner, max_size=4)),
    max_leaves=12,
)


@settings(max_examples=40)
@given(VALUES, st.sampled_from([None, '"']))
def test_what_it_reads_it_reads_as_pyyaml_does(value: Any, style: str | None) -> None:
    text = yaml.safe_dump(value, default_flow_style=False, default_style=style, allow_unicode=True)
    try:
        read = parse(text)
    except NotThisSubset:
        return
    assert read == yaml.safe_load(text)


@settings(max_examples=40)
@given(st.text(alphabet="ab0:-. \n#'\"[]{}|>&*!%@~,\t?=/", max_size=60))
def test_any_text_is_read_as_pyyaml_does_or_refused(text: str) -> None:
    try:
        read = parse(text)
    except NotThisSubset:
        return
    assert read == yaml.safe_load(text)


@settings(max_examples=40)
@given(
    st.dictionaries(
        st.from_regex(r"[a-z][a-zA-Z]{2,8}", fullmatch=True).filter(lambda word: yaml.safe_load(word) == word),
        st.lists(st.from_regex(r"/[a-z0-9/._-]{1,30}", fullmatch=True), min_size=1, max_size=5),
        min_size=1,
        max_size=5,
    )
)
def test_paths_are_not_refused(value: dict[str, list[str]]) -> None:
    assert parse(yaml.safe_dump(value)) == value


SPEC = """---
cdiVersion: 0.5.0
containerEdits:
  env:
  - NVIDIA_VISIBLE_DEVICES=void
  hooks:
  - args:
    - nvidia-cdi-hook
    - --link
    - libcuda.so.1::/usr/lib/x86_64-linux-gnu/libcuda.so
    hookName: createContainer
    path: /usr/bin/nvidia-cdi-hook
  mounts: []
devices:
- containerEdits:
    deviceNodes:
    - path: /dev/nvidia0
      major: 195
  name: "0"
- containerEdits: {}
  name: all
kind: nvidia.com/gpu
"""


def test_a_specification_as_the_toolkit_writes_it() -> None:
    assert parse(SPEC) == yaml.safe_load(SPEC)


@pytest.mark.parametrize(
    "text",
    [
        "a: &x 1\nb: *x\n", "a: |\n  text\n", "a: {b: c}\n", "a: [1, 2]\n", "a: yes\n", "a: 1.5\n", "a: 2026-01-01\n",
        "a: x\n  y\n", "a: 1\na: 2\n", "a:\n\t- x\n", "a: b: c\n", "!!python/object:x {}\n", "a: 'x\n", 'a: "x\n',
        "a\n---\nb\n", "- a\n b\n", "a: x # y\n", "? a\n", "0o7: x\n", "a: 0x10\n",
    ],
)  # fmt: skip
def test_what_is_not_its_subset_is_refused(text: str) -> None:
    with pytest.raises(NotThisSubset):
        parse(text)


def test_nothing() -> None:
    assert parse("") is None
    assert parse("# only a comment\n") is None
