"""What must agree across the repository: names that stand in two files for good reasons, and the size of playbooks."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.module_utils.compat.version import LooseVersion

CHECKOUT = Path(__file__).resolve().parents[2]
MODULES = sorted(path for path in (CHECKOUT / "plugins" / "modules").glob("*.py") if path.name != "__init__.py")
ROLES = sorted(path for path in (CHECKOUT / "roles").glob("*") if path.is_dir())
PLAYBOOKS = sorted((CHECKOUT / "playbooks").glob("*.yml"))
ROLE_ENTRY_POINTS = [
    pytest.param(role, path, id=f"{role.name}-{path.stem}")
    for role in ROLES
    for path in sorted((role / "tasks").glob("*.yml"))
    if path.stem == "main"
]

# A page: a playbook composes, and what is longer belongs in a task file or a role.
PAGE_LINES = 60


def load(path: Path) -> Any:
    # Ansible's own tags (!vault, !unsafe) are read as plain values.
    class Loader(yaml.SafeLoader):
        pass

    Loader.add_multi_constructor("!", lambda loader, suffix, node: loader.construct_scalar(node))
    return yaml.load(path.read_text(encoding="utf-8"), Loader)


def documentation(path: Path) -> dict[str, Any]:
    found = re.search(r'^DOCUMENTATION = r"""\n(.*?)^"""', path.read_text(encoding="utf-8"), re.M | re.S)
    assert found, f"{path} has no DOCUMENTATION"
    return yaml.safe_load(found[1])


def test_action_group_lists_every_module() -> None:
    groups = load(CHECKOUT / "meta" / "runtime.yml")["action_groups"]
    assert list(groups) == ["sglang"]
    assert groups["sglang"] == [path.stem for path in MODULES]


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_module_documents_its_action_group_and_attributes(path: Path) -> None:
    said = documentation(path)
    assert said["module"] == path.stem
    fragments = said.get("extends_documentation_fragment", [])
    assert "serving.sglang.attributes" in fragments
    assert "serving.sglang.attributes.actiongroup_sglang" in fragments
    attributes = said.get("attributes", {})
    if "serving.sglang.attributes.info_module" not in fragments:
        assert {"check_mode", "diff_mode", "idempotent"} <= set(attributes), "say what the module supports"
    for name, attribute in attributes.items():
        # Partial support without the reason helps nobody.
        assert attribute.get("support") not in ("partial", "none") or attribute.get("details"), name


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_module_imports_only_module_utils_of_the_collection(path: Path) -> None:
    for name in re.findall(r"ansible_collections\.serving\.sglang\.([\w.]+)", path.read_text(encoding="utf-8")):
        assert name.startswith("plugins.module_utils"), name


def test_every_plugin_file_names_its_licence() -> None:
    for path in sorted((CHECKOUT / "plugins").rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        assert "# SPDX-License-Identifier: GPL-3.0-or-later\n" in text, path
        assert "# GNU General Public License v3.0+ (see LICENSE or " in text, path
        assert "from __future__ import annotations\n" in text, path


def test_module_utils_import_no_ansible() -> None:
    for path in sorted((CHECKOUT / "plugins" / "module_utils").rglob("*.py")):
        found = re.search(r"^\s*(from|import) ansible\b.*$", path.read_text(encoding="utf-8"), re.M)
        assert not found, f"{path}: {found[0]}"


@pytest.mark.parametrize(("role", "tasks"), ROLE_ENTRY_POINTS)
def test_role_specifies_exactly_its_defaults(role: Path, tasks: Path) -> None:
    specs = load(role / "meta" / "argument_specs.yml")["argument_specs"]
    options = specs[tasks.stem]["options"]
    defaults = load(role / "defaults" / "main.yml") or {} if (role / "defaults" / "main.yml").exists() else {}
    required = {name for name, option in options.items() if option.get("required")}

    undocumented = set(defaults) - {name for spec in specs.values() for name in spec["options"]}
    assert not undocumented, f"defaults/main.yml has what argument_specs.yml does not: {sorted(undocumented)}"
    assert not required & set(defaults), "a required option cannot have a default"
    without = {name for name in set(options) - set(defaults) - required if "default" in options[name]}
    assert not without, f"argument_specs.yml gives defaults that defaults/main.yml does not: {sorted(without)}"
    for name, option in options.items():
        if name not in defaults:
            continue
        value = defaults[name]
        # What Ansible computes may be told as its expression, or in words in the description.
        if isinstance(value, str) and "{{" in value:
            assert option.get("default", value) == value, name
        elif value is not None:
            assert "default" in option, f"{name} has the default {value!r}, which argument_specs.yml does not tell"
            assert option["default"] == value, name


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_role_prefixes_its_variables(role: Path) -> None:
    for folder, prefix in (("defaults", f"{role.name}_"), ("vars", f"__{role.name}_")):
        for path in sorted((role / folder).rglob("*.yml")):
            wrong = [name for name in load(path) or {} if not name.startswith(prefix)]
            assert not wrong, f"{path.relative_to(CHECKOUT)}: {wrong} do not begin with {prefix}"


def test_dependencies_are_what_is_used() -> None:
    declared = set(load(CHECKOUT / "galaxy.yml")["dependencies"])
    used = set()
    for folder in ("roles", "playbooks"):
        for path in sorted((CHECKOUT / folder).rglob("*.yml")):
            names = re.findall(r"^\s*(?:- )?(\w+\.\w+)\.\w+:", path.read_text(encoding="utf-8"), re.M)
            used |= set(names) - {"ansible.builtin", "ansible.legacy", "serving.sglang"}
    assert used == declared


@pytest.mark.parametrize("path", PLAYBOOKS, ids=lambda path: path.stem)
def test_playbook_is_a_page(path: Path) -> None:
    lines = len(path.read_text(encoding="utf-8").splitlines())
    assert lines <= PAGE_LINES, f"{path.name} has {lines} lines; move steps to playbooks/tasks/ or a role"


def test_readme_names_only_targets_that_exist() -> None:
    makefiles = [CHECKOUT / "Makefile", *sorted((CHECKOUT / "mk").glob("*.mk"))]
    rules = "\n".join(path.read_text(encoding="utf-8") for path in makefiles)
    targets = set(re.findall(r"^([a-z][a-z0-9-]*):", rules, re.M))
    for path in [CHECKOUT / "README.md", *sorted((CHECKOUT / "docs").rglob("*.md"))]:
        text = path.read_text(encoding="utf-8")
        named = set(re.findall(r"(?:`|^\s*(?:\$ )?(?:sudo )?)make ([a-z][a-z0-9-]*)", text, re.M))
        assert named <= targets, f"{path.name} names targets that do not exist: {sorted(named - targets)}"


def test_readme_names_only_playbooks_and_roles_that_exist() -> None:
    known = {path.stem for path in PLAYBOOKS + MODULES} | {path.name for path in ROLES}
    known |= {path.stem for kind in ("filter", "callback") for path in (CHECKOUT / "plugins" / kind).glob("*.*")}
    text = (CHECKOUT / "README.md").read_text(encoding="utf-8")
    named = set(re.findall(r"serving\.sglang\.([a-z][a-z_]+)", text)) - {"sglang"}
    assert named <= known, f"README.md names what does not exist: {sorted(named - known)}"


def test_locked_requirements_are_exact_and_hashed() -> None:
    for path in sorted((CHECKOUT / "requirements").glob("*.txt")):
        text = path.read_text(encoding="utf-8")
        for line in re.findall(r"^[a-z].*$", text, re.M):
            assert "==" in line, f"{path.name}: {line}"
        assert text.count("--hash=sha256:") >= len(re.findall(r"^[a-z]", text, re.M)), path.name


def test_supported_ansible_is_what_is_tested() -> None:
    lowest = load(CHECKOUT / "meta" / "runtime.yml")["requires_ansible"].removeprefix(">=")
    tested = sorted((CHECKOUT / "requirements").glob("ansible-*.in"), key=lambda path: LooseVersion(path.stem[8:]))
    assert lowest == f"{tested[0].stem.removeprefix('ansible-')}.0"


def test_every_executable_says_what_runs_it() -> None:
    listed = subprocess.run(
        ["git", "ls-files", "--stage", "-z"], cwd=CHECKOUT, check=True, capture_output=True, text=True
    ).stdout.split("\0")
    wrong = []
    for entry in filter(None, listed):
        mode, name = entry.split()[0], entry.split("\t")[1]
        path = CHECKOUT / name
        # A module's first line is for Ansible, which starts it itself.
        if not path.is_file() or path.is_symlink() or path in MODULES:
            continue
        with path.open("rb") as file:
            has_shebang = file.read(2) == b"#!"
        if has_shebang != (mode == "100755"):
            wrong.append(f"{name} has mode {mode}")
    assert not wrong


def steps_of(target: str) -> set[str]:
    """The targets that a target runs, as make expands it."""
    words = subprocess.run(["make", "-n", target], cwd=CHECKOUT, capture_output=True, text=True, check=True).stdout
    return set(re.split(r"[\s,+]+", words.partition("tests/dev/steps ")[2]))


def test_every_scenario_and_every_test_file_is_run() -> None:
    scenarios = {f"scenario-{path.parent.name}" for path in CHECKOUT.glob("molecule/*/molecule.yml")}
    assert scenarios <= steps_of("test-full")
    assert scenarios - steps_of("test") == {"scenario-cgroup_v2"}
    lines = [
        subprocess.run(["make", "-n", target], cwd=CHECKOUT, capture_output=True, text=True, check=True).stdout
        for target in ("hosts", "servers")
    ]
    for path in sorted(CHECKOUT.glob("tests/integration/test_*.py")):
        assert sum(path.relative_to(CHECKOUT).as_posix() in line for line in lines) == 1, path.name
