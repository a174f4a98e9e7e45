# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One variable of a file is changed, and nothing else of it; what cannot be read for certain is refused."""

from __future__ import annotations

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.serving.sglang.plugins.module_utils import vars_file
from ansible_collections.serving.sglang.plugins.module_utils.errors import EngineError

NAME = "sglang_server_image"
PIN = "docker.io/lmsysorg/sglang:v0.5.22@sha256:" + "ab" * 32


def edit(text: str, value: str = PIN) -> str:
    return vars_file.with_value(text, vars_file.find_variable(text, NAME, "all.yml", value), value)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (f"{NAME}: lmsysorg/sglang:v0.5.21\n", f"{NAME}: {PIN}\n"),
        (f"{NAME}: lmsysorg/sglang:v0.5.21", f"{NAME}: {PIN}"),
        (f"{NAME}:   'a:b'   # why\n", f"{NAME}:   '{PIN}'   # why\n"),
        (f'"{NAME}": "a:b" # why\n', f'"{NAME}": "{PIN}" # why\n'),
        (f"{NAME}:\n", f"{NAME}: {PIN}\n"),
        (f"{NAME}: # not yet\n", f"{NAME}: {PIN} # not yet\n"),
        (f"{NAME}:   # not yet\n", f"{NAME}:  {PIN} # not yet\n"),
        (f"{NAME}: ~\n", f"{NAME}: {PIN}\n"),
        (f"{NAME}: null # x\n", f"{NAME}: {PIN} # x\n"),
        (f'{NAME}: ""\n', f'{NAME}: "{PIN}"\n'),
        (f"---\r\na: 1\r\n{NAME}: x\r\nb: 2\r\n", f"---\r\na: 1\r\n{NAME}: {PIN}\r\nb: 2\r\n"),
        (f"# {NAME}: old\n{NAME}: x\n# {NAME}: older\n", f"# {NAME}: old\n{NAME}: {PIN}\n# {NAME}: older\n"),
        (f"{NAME}_runtime: y\n{NAME}: x\nlist:\n- 1\n", f"{NAME}_runtime: y\n{NAME}: {PIN}\nlist:\n- 1\n"),
        (f"{NAME}: x\n  # a remark\nb: 1\n", f"{NAME}: {PIN}\n  # a remark\nb: 1\n"),
    ],
)
def test_only_the_value_changes(before, after) -> None:
    assert edit(before) == after
    assert edit(after) == after
    assert yaml.safe_load(after)[NAME] == PIN


def test_a_registry_in_brackets_is_quoted() -> None:
    assert edit(f"{NAME}: x\n", "[::1]:5000/sglang:v1") == f'{NAME}: "[::1]:5000/sglang:v1"\n'


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a: 1\n", f"{NAME} is not in it. Next step: write at the left margin, by hand: {NAME}: {PIN}"),
        ("", f"{NAME} is not in it"),
        (f"{NAME}: a\nb: 1\n{NAME}: c\n", "it 2 times (lines 1, 3), and the last one counts"),
        (f"all:\n  vars:\n    {NAME}: a\n", "inside another structure there (line 3)"),
        (f"x:\n  - {NAME}: a\n", "inside another structure there (line 2)"),
        (f'{{"{NAME}": "a"}}\n', "inside another structure there (line 1)"),
        (f"{NAME}: >-\n  a\n", "(line 1) is no single word"),
        (f"{NAME}: |\n  a\n", "is no single word"),
        (f"{NAME}: !vault |\n  a\n", "is no single word"),
        (f"{NAME}: &pin a\n", "is no single word"),
        (f"{NAME}: *pin\n", "is no single word"),
        (f"{NAME}: {{name: a}}\n", "is no single word"),
        (f"{NAME}: [a]\n", "is no single word"),
        (f"{NAME}: a\t# PyYAML reads no tab there\n", "is no single word"),
        (f"{NAME}: to be chosen\n", "is no single word"),
        (f'{NAME}: "a\\x41"\n', "is no single word"),
        (f"{NAME}: 'a\n  b'\n", "is no single word"),
        (f"{NAME}:\n  name: a\n", "goes on in the lines below it"),
        (f"{NAME}:\n\n# remark\n- a\n", "goes on in the lines below it"),
        (f"{NAME}: a\n  b\n", "goes on in the lines below it"),
        (f'{NAME}: "{{{{ registry }}}}/sglang:v0.5.22"\n', "is computed by a template"),
        (f'{NAME}: "{{{{ lookup(\\"x\\") }}}}"\n', "is computed by a template"),
        ("$ANSIBLE_VAULT;1.1;AES256\n6162\n", "it is encrypted by ansible-vault"),
    ],
)
def test_what_is_not_edited_is_told_what_to_write(text, says) -> None:
    with pytest.raises(EngineError) as raised:
        edit(text)
    assert raised.value.kind == "image.vars_file"
    assert raised.value.msg.startswith("all.yml is not edited: ")
    assert says in raised.value.msg
    assert raised.value.msg.endswith(f"by hand: {NAME}: {PIN}")


values = st.one_of(
    st.sampled_from(["a:b", "'a'", '"b"', "~", "", " # c", "x # c", "docker.io/a/b:v1@sha256:aa"]), st.integers(0, 99)
)
others = st.sampled_from(["a: 1", "# remark", "", "list:\n  - x\n- y", "text: |\n  b: c", "m:\n  k: v", "s: 'q # r'"])


@given(st.lists(others, max_size=5), values, st.lists(others, max_size=5), st.booleans())
def test_everything_else_stays_as_it_is(above, value, below, end) -> None:
    text = "\n".join([*above, f"{NAME}: {value}", *below]) + ("\n" if end else "")
    after = edit(text)
    assert edit(after) == after
    lines, changed = text.split("\n"), after.split("\n")
    assert [line for line in lines if NAME not in line] == [line for line in changed if NAME not in line]
    try:
        before = yaml.safe_load(text)
    except yaml.YAMLError:
        return
    assert yaml.safe_load(after) == {**before, NAME: PIN}
