"""The docker backend's parts that need no engine: records, the engine's frames, the profile, the settings, the judgement."""

import json
import os
import platform
import socket
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox import Limits, Mount, Policy
from sandbox.backends.docker import readback, settings
from sandbox.backends.docker.attached import Attached
from sandbox.backends.docker.inside import records
from sandbox.backends.docker.profile import profile
from sandbox.backends.docker.settings import Space
from sandbox.backends.namespaces.syscalls import ALLOWED, REFUSED


@given(st.lists(st.tuples(st.sampled_from([b"C", b"1"]), st.binary(max_size=300)), max_size=20), st.data())
def test_records_come_out_as_they_went_in_however_they_are_cut(sent, data):
    stream = b"".join(records.encode(kind, body) for kind, body in sent)
    decoder = records.Decoder(kinds=frozenset({b"C", b"1"}))
    found = []
    while stream:
        cut = data.draw(st.integers(1, len(stream)))
        found += decoder.feed(stream[:cut])
        stream = stream[cut:]

    assert found == sent


def test_long_data_goes_in_several_records():
    decoder = records.Decoder(kinds=frozenset({b"C"}))
    data = os.urandom(3 * records.MOST_BYTES + 5)

    found = list(decoder.feed(records.encode(b"C", data)))

    assert b"".join(body for _, body in found) == data
    assert max(len(body) for _, body in found) == records.MOST_BYTES


@given(st.binary(min_size=1, max_size=200))
def test_garbage_is_refused_or_waited_for_and_never_held_without_end(data):
    decoder = records.Decoder(kinds=frozenset({b"C"}))
    try:
        for kind, body in decoder.feed(data):
            assert (kind, len(body) <= records.MOST_BYTES) == (b"C", True)
    except records.RecordError:
        return
    assert len(decoder._held) < records.HEADER.size + records.MOST_BYTES


@given(st.binary(max_size=400), st.data())
def test_the_engine_s_frames_are_taken_apart_however_they_are_cut(noise, data):
    body = records.encode(b"1", b"hello") + records.encode(b"C", b"frame")
    middle = data.draw(st.integers(0, len(body)))
    stream = b"".join(
        struct.pack(">BxxxI", stream, len(piece)) + piece
        for stream, piece in ((1, body[:middle]), (2, noise), (1, body[middle:]))
        if piece
    )
    ours, theirs = socket.socketpair()
    found = []
    with ours, theirs:
        attached = Attached(ours)
        while stream:
            cut = data.draw(st.integers(1, len(stream)))
            theirs.send(stream[:cut])
            stream = stream[cut:]
            found += attached.receive()

    assert found == [(b"1", b"hello"), (b"C", b"frame")]
    assert attached.complaint == noise


@pytest.mark.skipif(platform.machine() not in ALLOWED, reason="no filter is written for this machine")
def test_the_profile_allows_and_refuses_what_the_tables_say():
    found = json.loads(profile())
    allowed = {
        n for r in found["syscalls"] if r["action"] == "SCMP_ACT_ALLOW" and not r["args"] for n in r["names"]
    }
    refused = {
        n: r["errnoRet"] for r in found["syscalls"] if r["action"] == "SCMP_ACT_ERRNO" for n in r["names"]
    }

    assert set(ALLOWED[platform.machine()]) <= allowed
    assert not allowed & set(refused)
    assert {"socket", "socketpair", "clone"}.isdisjoint(allowed)
    assert found["defaultErrnoRet"] == refused["clone3"] == 38
    assert {refused[name] for name in ("ptrace", "mount", "bpf", "io_uring_setup", "unshare", "connect")} == {
        1
    }
    assert set(REFUSED[platform.machine()]) - set(refused) <= allowed
    assert found["architectures"] == ["SCMP_ARCH_X86_64"]


def test_a_machine_without_tables_has_no_profile():
    assert profile("pdp11") is None


def a_configuration(**policy):
    policy = Policy(backend="docker", **policy)
    container = settings.plan_container(policy, small_ids=False)
    return container, settings.configuration(policy, container, image_name="image")["HostConfig"]


def options(mount) -> str:
    return mount["VolumeOptions"]["DriverConfig"]["Options"]["o"]


def test_a_container_is_closed_on_every_side():
    container, host = a_configuration()

    assert (host["NetworkMode"], host["ReadonlyRootfs"], host["CapDrop"]) == ("none", True, ["ALL"])
    assert (host["IpcMode"], host["Privileged"], host["LogConfig"]["Type"]) == ("none", False, "none")
    assert "no-new-privileges" in host["SecurityOpt"]
    assert host["MemorySwap"] == host["Memory"]
    assert [mount["Target"] for mount in host["Mounts"]] == ["/workspace", "/tmp"]
    assert all("nosuid,nodev,noexec" in options(mount) for mount in host["Mounts"])
    assert {"/sys", "/proc/sys", "/proc/version"} <= set(host["MaskedPaths"])
    assert not {"/proc/self", "/proc/1"} & set(host["MaskedPaths"])
    assert container.uid >= 0x78000000


def test_limits_reach_the_engine():
    _, host = a_configuration(
        limits=Limits(memory_bytes=1 << 28, processes=7, workspace_bytes=1 << 20, workspace_inodes=9)
    )

    assert 1 << 28 < host["Memory"] <= (1 << 28) + (64 << 20)
    assert 7 < host["PidsLimit"] < 40
    assert "size=1048576,nr_inodes=9" in options(host["Mounts"][0])


def test_every_bind_is_read_only_and_what_is_mounted_below_gets_its_own(tmp_path, monkeypatch):
    monkeypatch.setattr(settings, "_mount_points", lambda: ["/", str(tmp_path / "sub"), "/elsewhere"])
    _, host = a_configuration(evidence=(Mount(source=str(tmp_path), target="tree"),))

    binds = [mount for mount in host["Mounts"] if mount["Type"] == "bind"]
    assert [(bind["Source"], bind["Target"]) for bind in binds] == [
        (str(tmp_path), "/evidence/tree"),
        (str(tmp_path / "sub"), "/evidence/tree/sub"),
    ]
    assert all(bind["ReadOnly"] and bind["BindOptions"]["NonRecursive"] for bind in binds)


FACTS = {
    "init": True,
    "uids": [7],
    "groups": [7],
    "uid_map": "",
    "capabilities": ["CapEff:\t0000000000000000"],
    "no_new_privs": 1,
    "namespaces": dict.fromkeys(("mnt", "pid", "net", "ipc", "uts", "user"), "x:[1]"),
    "mounts": {"/": ["overlay", "ro,relatime"], "/workspace": ["tmpfs", "rw"], "/tmp": ["tmpfs", "rw"]},
    "spaces": {"/workspace": [1 << 20, 30], "/tmp": [4096, 4]},
    "interfaces": ["lo"],
    "host_name": "box",
    "kernel": [platform.release(), platform.version()],
    "limits": {"core": 0},
    "landlock": 7,
    "filtered": True,
    "seccomp": 2,
}


def judged(**changed) -> set[str]:
    facts = {**FACTS, **changed}
    expected = readback.Expected(
        uid=7,
        host_name="box",
        runtime="runc",
        limits={"core": 0},
        spaces={"/workspace": Space(1 << 20, 30), "/tmp": Space(4000, 4)},
    )
    return set(readback.layers(facts, expected, None))


def own(kind: str) -> str:
    return str(Path(f"/proc/self/ns/{kind}").readlink())


@pytest.mark.parametrize(
    ("layer", "changed"),
    [
        ("mount-ns", {"mounts": {**FACTS["mounts"], "/": ["overlay", "rw,relatime"]}}),
        ("mount-ns", {"mounts": {"/": ["overlay", "ro"], "/tmp": ["tmpfs", "rw"]}}),
        ("mount-ns", {"spaces": {**FACTS["spaces"], "/workspace": [2 << 20, 30]}}),
        ("mount-ns", {"spaces": {**FACTS["spaces"], "/workspace": [1 << 20, 31]}}),
        ("mount-ns", {"spaces": {**FACTS["spaces"], "/tmp": [4096, 0]}}),
        ("mount-ns", {"namespaces": {**FACTS["namespaces"], "mnt": own("mnt")}}),
        ("pid-ns", {"init": False}),
        ("pid-ns", {"namespaces": {**FACTS["namespaces"], "pid": own("pid")}}),
        ("net-ns", {"interfaces": ["lo", "eth0"]}),
        ("net-ns", {"namespaces": {**FACTS["namespaces"], "net": own("net")}}),
        ("ipc-ns", {"namespaces": {**FACTS["namespaces"], "ipc": ""}}),
        ("uts-ns", {"host_name": "the host"}),
        ("uid", {"uids": [0, 7]}),
        ("uid", {"groups": [0]}),
        ("caps-empty", {"capabilities": ["CapEff:\t0000000000000000", "CapBnd:\t0000000000000001"]}),
        ("caps-empty", {"capabilities": []}),
        ("no-new-privs", {"no_new_privs": 0}),
        ("landlock:7", {"landlock": 0}),
        ("seccomp", {"seccomp": 0}),
        ("seccomp", {"filtered": False}),
        ("rlimits", {"limits": {"core": -1}}),
        ("runtime:runc", {"kernel": ["4.4.0", "gVisor"]}),
    ],
)
def test_a_layer_that_does_not_show_is_not_claimed(layer, changed):
    assert layer in judged()
    assert layer not in judged(**changed)
