"""Every fault of a mix is refused by the one check that must refuse it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from casebits_dagster.mixing.verify import verify_mix
from casebits_dagster.records.errors import CasebitsError
from casebits_dagster.records.layout import Home
from tests.mixing.fault_table import PAGE, page
from tests.mixing.mix_faults import MIX_FAULTS, MixFault
from tests.mixing.mix_mutations import build_all, seal


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Home:
    home = Home(tmp_path_factory.mktemp("built") / "home")
    build_all(home)
    return home


@pytest.mark.parametrize("fault", MIX_FAULTS, ids=lambda fault: fault.name)
def test_fault_is_refused_by_its_check(built: Home, tmp_path: Path, fault: MixFault) -> None:
    home = Home(tmp_path / "copy")
    shutil.copytree(built.root, home.root)
    folder = home.mix(fault.mix)
    fault.mutate(home, folder)
    if fault.sealed:
        seal(folder)
    with pytest.raises(CasebitsError) as caught:
        verify_mix(folder, home)
    assert caught.value.code == fault.check, str(caught.value)


def test_each_fault_has_a_name_of_its_own_and_the_page_is_the_catalogue() -> None:
    names = [fault.name for fault in MIX_FAULTS]
    assert sorted(set(names)) == sorted(names)
    assert PAGE.read_text(encoding="utf-8") == page()
