"""Files and requests of a job, from the flags of `custody run` to a folder on disk."""

import http.server
import threading

from tests.e2e.cli.custody import Custody

BOOK = """# %%
(workspace / 'out').mkdir()
(workspace / 'out' / 'a.csv').write_text('1,2')
(workspace / 'out' / 'b\\n.csv').write_text('3')
SUBMIT(answer='done', citations=[])
"""


def test_files_that_match_are_kept_listed_and_copied(custody: Custody):
    (custody.folder / "book.py").write_text(BOOK)

    done = custody("run", "Make files", "-p", "book.py", "--collect", "out/*.csv", "--out", "made", "--json")

    assert done.code == 0, done.err
    assert "2 files copied to made" in done.err
    assert [ref["path"] for ref in done.document["result"]["artifact_refs"]] == [
        "out/a.csv",
        r"out/b\u000a.csv",
    ]
    assert (custody.folder / "made" / "out" / "a.csv").read_text() == "1,2"
    assert (custody.folder / "made" / "out" / r"b\u000a.csv").read_text() == "3"

    job_id = done.document["job_id"]
    listed = custody("artifacts", job_id)
    assert "out/a.csv" in listed.out
    assert "2 files" in custody("show", job_id).out
    assert "kept 2 files" in custody("trace", job_id).out

    again = custody("artifacts", job_id, "--out", "made")
    assert again.code == 2
    assert "new or an empty folder" in again.err
    assert custody("artifacts", job_id, "--out", "other").code == 0
    kept = custody("artifacts", job_id, "--json").document["artifacts"]
    assert [ref["size_bytes"] for ref in kept] == [3, 1]


def test_kept_content_that_was_changed_is_not_handed_out(custody: Custody):
    (custody.folder / "book.py").write_text(BOOK)
    done = custody("run", "Make files", "-p", "book.py", "--collect", "out/a.csv", "--json")
    (ref,) = done.document["result"]["artifact_refs"]
    (custody.home / "artifacts" / ref["digest"]).write_text("forged")

    out = custody("artifacts", done.document["job_id"], "--out", "made")

    assert out.code != 0
    assert "not what the job made" in out.err
    assert not (custody.folder / "made" / "out" / "a.csv").exists()


def test_a_request_to_an_allowed_host_is_made_and_shown_in_the_trace(custody: Custody):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    place = f"127.0.0.1:{server.server_address[1]}"
    (custody.folder / "book.py").write_text(
        f"# %%\nSUBMIT(answer=str(fetch('http://{place}/nothing-here').status), citations=[])\n"
    )
    try:
        done = custody("run", "Ask", "-p", "book.py", "--allow-net", place, "--json")
    finally:
        server.shutdown()
        thread.join()
        server.server_close()

    assert done.code == 0, done.err
    assert done.document["result"]["structured_output"]["answer"] == "404"
    trace = custody("trace", done.document["job_id"], "--all").out
    assert f"network GET http://{place}/nothing-here ← 404 from {place}" in trace


def test_flags_that_make_no_sense_are_refused_before_anything_is_made(custody: Custody):
    (custody.folder / "book.py").write_text(BOOK)
    (custody.folder / "full").mkdir()
    (custody.folder / "full" / "mine").write_text("x")
    for flags, said in (
        (("--allow-net", "example.org"), "host:port"),
        (("--allow-net", "0x7f.1:80"), "four decimal numbers"),
        (("--collect", "/etc/*"), "relative to the workspace"),
        (("--out", "made"), "--out needs --collect"),
        (("--out", "made", "--collect", "*", "--detach"), "--out needs --collect"),
        (("--out", "full", "--collect", "*"), "new or an empty folder"),
    ):
        done = custody("run", "Make files", "-p", "book.py", *flags)
        assert done.code == 2, (flags, done)
        assert said in done.err
    assert custody.jobs() == []
