# Copyright (c) 2026, serving.sglang contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Releases: one table, and the nearest entry for what is not in it."""

from __future__ import annotations

import pytest

from ansible_collections.serving.sglang.plugins.module_utils.releases import RELEASES, release_for


@pytest.mark.parametrize("version", ["0.5.17", "0.5.22", "0.5.23"])
def test_a_known_release_is_not_assumed(version):
    assert release_for(version) is RELEASES[version]
    assert not release_for(version).assumed


@pytest.mark.parametrize(
    ("version", "nearest"),
    [
        ("0.5.24", "0.5.23"),
        ("0.6.0", "0.5.23"),
        ("1.0", "0.5.23"),
        ("0.5.20", "0.5.17"),
        ("0.5.22.post1", "0.5.22"),
        ("0.5.22+cu130", "0.5.22"),
        ("0.4.0", "0.5.17"),
        ("nightly", "0.5.17"),
    ],
)
def test_an_unknown_release_takes_the_nearest_and_says_so(version, nearest):
    release = release_for(version)
    assert release.version == nearest
    assert release.assumed


def test_exit_codes_after_a_clean_drain():
    assert {name: release.clean_exit_code for name, release in RELEASES.items()} == {
        "0.5.17": -9,
        "0.5.22": 0,
        "0.5.23": 0,
    }


def test_the_tail_is_the_sum_of_its_parts():
    assert release_for("0.5.22").tail_s == 5 + 15 + 60


def test_a_client_of_the_health_check_waits_longer_than_the_check_itself():
    release = release_for("0.5.23")
    assert release.health_timeout_s > release.health_check_s


@pytest.mark.parametrize(
    ("environment", "forced"),
    [
        ({"SGL_FORCE_SHUTDOWN": "1"}, True),
        ({"SGL_FORCE_SHUTDOWN": "True"}, True),
        ({"SGL_FORCE_SHUTDOWN": "yes"}, False),
        ({"SGLANG_FORCE_SHUTDOWN": "1"}, False),
        ({}, False),
    ],
)
def test_only_the_variable_that_is_read_forces_a_shutdown(environment, forced):
    assert release_for("0.5.22").forces_shutdown(environment) is forced
