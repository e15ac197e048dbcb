"""What the tests on two real brokers that diverts and bridges join do to them, and read of them."""

from pathlib import Path

from dr_ctl_lab.lab.artemis.bridges import IDS, BridgesAdmin
from dr_ctl_lab.lab.ids import IdStore
from dr_ctl_lab.lab.kinds import BRIDGES
from dr_ctl_lab.lab.lab import Lab
from dr_ctl_lab.lab.ledger import Verdict

QUEUES = ("FOO", "BAR", "BAZ")


def up(directory: Path, **more: object) -> Lab:
    return Lab.up(directory, topology=BRIDGES, queues=QUEUES, **more)  # type: ignore[arg-type]


def admin(lab: Lab, site: str) -> BridgesAdmin:
    return BridgesAdmin(lab.site(site))


def ids(lab: Lab, site: str) -> set[tuple[str, str]]:
    """All that a site's store knows as processed."""
    store = IdStore(lab.id_store(site))
    try:
        return store.every()
    finally:
        store.close()


def shipped(lab: Lab, *sites: str) -> bool:
    """Nothing of these sites is under way, and all ids that arrived anywhere are in a store."""
    depths = {site: lab.admin(site).depths() for site in ("london", "paris")}
    held = [count for site in sites for name, count in depths[site].items() if name.startswith("mirror.")]
    return not any(held) and not any(told[IDS] for told in depths.values())


def assert_clean(verdict: Verdict) -> None:
    """Nothing lost, nothing worked on twice, and the queues were seen empty."""
    assert verdict.drained
    assert (verdict.lost, verdict.duplicates, verdict.redelivered, verdict.unexpected) == ((), (), (), ())
