"""What only an installation of diverts and bridges can have wrong in its settings."""

from __future__ import annotations

from pathlib import Path

import pytest

from dr_ctl.settings.loader import SettingsError, load

EXAMPLE = Path(__file__).parents[2] / "examples" / "artemis-bridges.yaml"


def written(folder: Path, *stores: str) -> Path:
    """The example, with an id store at each of the brokers."""
    head, *brokers = EXAMPLE.read_text(encoding="utf-8").split("      - name: orders-1")
    parts = [f"      - name: orders-1\n        ids: {each}{rest}" for each, rest in zip(stores, brokers, strict=True)]
    file = folder / "dr-ctl.yaml"
    file.write_text(head + "".join(parts), encoding="utf-8")
    return file


def test_each_site_has_an_id_store_of_its_own(tmp_path: Path) -> None:
    assert load(written(tmp_path, "{sqlite: london.db}", "{sqlite: paris.db}"))


def test_one_table_of_one_file_for_each_site_is_as_good(tmp_path: Path) -> None:
    assert load(written(tmp_path, "{sqlite: ids.db, table: london}", "{sqlite: ids.db, table: paris}"))


def test_one_id_store_for_both_sites_is_refused_because_it_would_always_agree_with_itself(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="orders-1 at paris and orders-1 at london have the same id store"):
        load(written(tmp_path, "{sqlite: ids.db}", "{sqlite: ids.db}"))
