"""Keys of the API: shown once, kept as hashes, good until they expire or are revoked."""

import dataclasses

import pytest

from controlplane.bootstrap import open_app
from controlplane.config import Settings
from controlplane.domain.identity import EVERY_TENANT, Caller, Scope, owner
from controlplane.errors import Denied, InvalidRequest, NotFound
from controlplane.handlers import keys

ADMIN = owner("ada")


@pytest.fixture
def desk(tmp_path):
    app = open_app(Settings(home=tmp_path / "home"))
    yield app.desk
    app.close()


def issue(desk, **given):
    return keys.issue(
        desk, **{"principal": "worker-1", "roles": ["worker"], "tenant_id": "a", "caller": ADMIN, **given}
    )


def test_a_key_names_its_holder(desk):
    row, token = issue(desk)

    assert keys.verify(desk, token) == Caller(
        name="worker-1", scope=Scope("a"), roles=frozenset({"worker"}), credential_id=row.key_id
    )


def test_a_key_without_a_tenant_sees_all_of_them(desk):
    _, token = issue(desk, tenant_id="")

    assert keys.verify(desk, token).scope == EVERY_TENANT


def test_the_secret_is_not_in_the_store(desk, tmp_path):
    row, token = issue(desk)
    secret = token.rpartition("_")[2]

    assert secret not in str(dataclasses.asdict(row))
    assert all(secret.encode() not in path.read_bytes() for path in (tmp_path / "home").glob("custody.db*"))


@pytest.mark.parametrize(
    "spoil",
    [
        lambda token: token[:-1] + ("0" if token[-1] != "0" else "1"),
        lambda token: token.replace("cst_", "key_"),
        lambda token: token.rpartition("_")[0],
        lambda token: "cst_0123456789abcdef_" + token.rpartition("_")[2],
        lambda token: token + "x" * 500,
        lambda _: "",
        lambda _: "cst__",
        lambda _: "cst_\udc80_\udc80",
    ],
)
def test_anything_else_is_nobodys_key(desk, spoil):
    _, token = issue(desk)

    assert keys.verify(desk, spoil(token)) is None


def test_a_revoked_key_is_nobodys_at_once(desk):
    row, token = issue(desk)

    assert keys.revoke(desk, row.key_id, caller=ADMIN).revoked_by == "ada"

    assert keys.verify(desk, token) is None


def test_an_expired_key_is_nobodys(desk):
    _, token = issue(desk, expires_ms=1)

    assert keys.verify(desk, token) is None


def test_only_those_who_manage_keys_issue_or_revoke_them_and_within_their_tenant(desk):
    row, _ = issue(desk)
    viewer = Caller(name="v", scope=Scope("a"), roles=frozenset({"viewer"}))
    stranger = Caller(name="s", scope=Scope("b"), roles=frozenset({"admin"}))

    for caller, tenant in ((viewer, "a"), (stranger, "a"), (stranger, "")):
        with pytest.raises(Denied):
            issue(desk, caller=caller, tenant_id=tenant)
    with pytest.raises(Denied):
        keys.revoke(desk, row.key_id, caller=viewer)
    with pytest.raises(NotFound):
        keys.revoke(desk, row.key_id, caller=stranger)


def test_a_key_has_roles_that_there_are(desk):
    for roles in ([], ["king"]):
        with pytest.raises(InvalidRequest, match="roles"):
            issue(desk, roles=roles)
