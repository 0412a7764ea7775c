"""The evidence mapping, its documents, and the addresses of what is found in them."""

import os
import re
import resource
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sandbox.guest import content
from sandbox.guest.documents import Document, TooLarge
from sandbox.guest.evidence import Evidence, NoSuchDocument
from sandbox.guest.search import PatternError, compile_pattern


@pytest.fixture
def root(tmp_path):
    folder = tmp_path / "evidence"
    (folder / "src" / "pkg").mkdir(parents=True)
    (folder / "app.log").write_bytes(b"one\ntwo ERROR x\r\nthree\nfour ERROR y")
    (folder / "src" / "a.py").write_text("# XXX café\nx = 1\n", encoding="utf-8")
    (folder / "src" / "pkg" / "b.py").write_text("y = 2\n")
    (folder / "src" / "empty.txt").write_bytes(b"")
    (folder / "src" / "blob.bin").write_bytes(b"ERROR\0\xff\xfe")
    return folder


def document(tmp_path, data: bytes, name="d"):
    path = tmp_path / name
    path.write_bytes(data)
    content.content.cache_clear()
    return Document(name, str(path))


@pytest.mark.requirement("S3-RLM-11")
class TestTheMapping:
    def test_a_file_is_a_document_and_a_tree_contributes_its_paths(self, root):
        assert list(Evidence(root)) == [
            "app.log",
            "src/a.py",
            "src/blob.bin",
            "src/empty.txt",
            "src/pkg/b.py",
        ]
        assert Evidence(root).names("*.py") == ["src/a.py", "src/pkg/b.py"]
        assert Evidence(root).names("b.py") == ["src/pkg/b.py"]
        assert [d.name for d in Evidence(root).documents("src/p*")] == ["src/pkg/b.py"]

    def test_an_unknown_name_is_answered_with_close_ones(self, root):
        with pytest.raises(NoSuchDocument, match=r"did you mean 'src/pkg/b\.py'"):
            Evidence(root)["b.py"]
        with pytest.raises(KeyError, match=r"app\.log"):
            Evidence(root)["app.lgo"]

    def test_links_are_never_followed(self, root, tmp_path):
        (tmp_path / "secret").mkdir()
        (tmp_path / "secret" / "key").write_text("hidden")
        (root / "src" / "link").symlink_to(tmp_path / "secret")
        (root / "src" / "file-link").symlink_to(tmp_path / "secret" / "key")
        assert not [name for name in Evidence(root) if "link" in name]

    def test_the_overview_names_count_bytes_and_first_names(self, root):
        shown = repr(Evidence(root))
        assert "5 documents" in shown
        assert "app.log" in shown
        assert Evidence(root).total_bytes == sum(d.size for d in Evidence(root).values())

    def test_a_name_that_is_not_utf8_is_still_reachable(self, root):
        Path(os.fsdecode(os.fsencode(root) + b"/bad\xff.txt")).write_bytes(b"found here\n")
        (hit,) = Evidence(root).search("found here")
        assert hit.citation == "bad\ufffd.txt:1"
        hit.citation.encode("utf-8")

    def test_missing_evidence_is_empty_evidence(self, tmp_path):
        assert len(Evidence(tmp_path / "nothing")) == 0
        assert list(Evidence(tmp_path / "nothing").search("x")) == []
        assert "0 documents" in repr(Evidence(tmp_path / "nothing"))


class TestSearch:
    def test_a_hit_has_its_address_its_line_and_its_groups(self, root):
        hits = list(Evidence(root).search(r"ERROR (?P<what>\w)"))
        assert [str(hit) for hit in hits] == ["app.log:2: two ERROR x", "app.log:4: four ERROR y"]
        assert (hits[0].match, hits[0].groups, hits[0].group("what")) == ("ERROR x", ("x",), "x")
        assert hits[1].context(before=1, after=9).citation == "app.log:3-4"
        assert hits[0].context(1, 1) == "one\ntwo ERROR x\r\nthree"

    def test_binary_files_are_left_out_unless_asked_for(self, root):
        assert {hit.document.name for hit in Evidence(root).search("ERROR")} == {"app.log"}
        assert "src/blob.bin" in {hit.document.name for hit in Evidence(root).search("ERROR", binary=True)}

    def test_hits_are_lazy_repeatable_sliceable_and_bounded(self, root):
        hits = Evidence(root).search("ERROR")
        assert [hit.line for hit in hits] == [hit.line for hit in hits] == [2, 4]
        assert (hits[1].line, len(hits[:1]), hits.count(), bool(hits), next(hits).line) == (4, 1, 2, True, 2)
        assert len(list(Evidence(root).search("ERROR", limit=1))) == 1
        assert not Evidence(root).search("nowhere")
        with pytest.raises(IndexError):
            hits[2]

    def test_unreadable_documents_are_left_out_and_named(self, root, monkeypatch):
        def refuse(path):
            raise PermissionError(path)

        evidence = Evidence(root)
        monkeypatch.setattr("sandbox.guest.documents.content", refuse)
        assert list(evidence.search("ERROR", glob="*.log")) == []
        assert evidence.unreadable == ["app.log"]

    def test_line_ends_are_lines_ends_with_and_without_carriage_returns(self, tmp_path):
        found = document(tmp_path, b"end\r\nend\nthe end").search("end$")
        assert [hit.line for hit in found] == [1, 2, 3]
        assert [hit.line for hit in document(tmp_path, b"a\nab\n").search("^a")] == [1, 2]

    def test_text_patterns_mean_characters(self, tmp_path):
        doc = document(tmp_path, "é éé É 5€ [x]\n".encode())
        assert [hit.match for hit in doc.search("é+")] == ["é", "éé"]
        assert [hit.match for hit in doc.search("é+", flags=re.IGNORECASE)] == ["é", "éé", "É"]
        assert [hit.match for hit in doc.search("(?i)\\u00e9{2}")] == ["éé"]
        assert [hit.match for hit in doc.search(r"[]x[]+$")] == ["[x]"]
        assert [hit.match for hit in doc.search(re.compile(r"\d€"))] == ["5€"]
        with pytest.raises(PatternError, match="cannot stand in"):
            doc.search("[é]")
        with pytest.raises(PatternError, match="cannot read the pattern"):
            doc.search("(")

    def test_a_very_long_line_is_shown_around_its_match(self, tmp_path):
        (hit,) = document(tmp_path, b"x" * 5000 + b"NEEDLE" + b"y" * 5000).search("NEEDLE")
        assert "NEEDLE" in hit.text
        assert len(hit.text) < 2100
        assert hit.text.startswith("…")
        assert hit.text.endswith("…")

    def test_an_empty_match_at_the_very_end_belongs_to_the_last_line(self, tmp_path):
        assert {hit.line for hit in document(tmp_path, b"a\nb\n").search(r"\Z")} == {2}
        assert document(tmp_path, b"", name="empty").search("^").count() <= 1


class TestDocuments:
    def test_lines_count_from_one_and_know_where_they_stand(self, root):
        doc = Evidence(root)["app.log"]
        assert [(line.number, line, line.citation) for line in doc.lines(2, 4)] == [
            (2, "two ERROR x", "app.log:2"),
            (3, "three", "app.log:3"),
        ]
        assert (doc.line(4), doc[-1], doc.line_count, len(doc)) == ("four ERROR y", "four ERROR y", 4, 4)
        assert doc[2:4].citation == "app.log:2-3"
        assert doc[3:] == "three\nfour ERROR y"
        assert (doc.head(1), doc.tail(1), doc[-2:].first) == ("one", "four ERROR y", 3)
        assert (doc.head(0), doc.tail(0), doc[9:12], doc[3:2]) == ("", "", "", "")
        with pytest.raises(IndexError, match="has 4 lines, there is no line 5"):
            doc.line(5)
        with pytest.raises(ValueError, match="count from 1"):
            doc[0]

    def test_an_empty_document_has_no_lines(self, root):
        doc = Evidence(root)["src/empty.txt"]
        assert (doc.size, doc.text, list(doc.lines()), doc.line_count, list(doc.chunks())) == (
            0,
            "",
            [],
            0,
            [],
        )
        assert (doc.head(), doc.tail(), bool(doc)) == ("", "", True)

    def test_a_document_too_large_for_one_str_says_what_to_use(self, tmp_path):
        path = tmp_path / "big"
        with path.open("wb") as file:
            file.truncate(65 << 20)
        with pytest.raises(TooLarge, match=r"\.search\(regex\)"):
            _ = Document("big", str(path)).text

    def test_invalid_utf8_is_replaced(self, tmp_path):
        assert document(tmp_path, b"a\xffb\n").text == "a\ufffdb\n"
        assert list(document(tmp_path, b"a\xff\nb").lines()) == ["a\ufffd", "b"]

    def test_mappings_do_not_eat_up_the_descriptors(self, tmp_path):
        folder = tmp_path / "many"
        folder.mkdir()
        for number in range(80):
            with (folder / f"{number:03}.log").open("wb") as file:
                file.write(b"needle\n")
                file.truncate((1 << 20) + 10)
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        taken = max(int(entry.name) for entry in Path("/proc/self/fd").iterdir())
        resource.setrlimit(resource.RLIMIT_NOFILE, (taken + 40, hard))
        try:
            hits = list(Evidence(tmp_path).search("needle", binary=True))
            assert [hit.text for hit in hits] == ["needle"] * 80
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    def test_lines_that_span_pieces_stay_whole(self, tmp_path, monkeypatch):
        monkeypatch.setattr(content, "_PIECE", 8)
        data = b"short\n" + b"x" * 50 + b"\nend"
        assert list(document(tmp_path, data).lines()) == ["short", "x" * 50, "end"]


LINES = st.lists(st.sampled_from([b"", b"a", b"bb a", b"\xc3\xa9a", b"\xff", b"x" * 40, b"a\r"]), max_size=60)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(lines=LINES, trailing=st.booleans(), block=st.integers(1, 64), order=st.randoms(use_true_random=False))
def test_line_numbers_are_those_of_a_naive_count(tmp_path, lines, trailing, block, order):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(content, "_BLOCK", block)
        data = b"\n".join(lines) + (b"\n" if trailing else b"")
        doc = document(tmp_path, data)
        hits = list(doc.search("a"))
        order.shuffle(hits)
        for hit in hits:
            assert hit.line == data[: hit.start].count(b"\n") + 1
            assert hit.text == doc.line(hit.line)
        naive = data.decode("utf-8", "replace").split("\n")
        naive = [line.removesuffix("\r") for line in (naive[:-1] if naive[-1] == "" else naive)]
        assert list(doc.lines()) == naive
        assert doc.line_count == len(naive)
        for number in order.sample(range(1, len(naive) + 1), min(5, len(naive))):
            assert doc.line(number) == naive[number - 1]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(lines=LINES, chars=st.integers(4, 90), share=st.floats(0, 0.9), by=st.sampled_from(["lines", "chars"]))
def test_chunks_cover_everything_in_order_and_cite_their_lines(tmp_path, lines, chars, share, by):
    data = b"\n".join(lines)
    doc = document(tmp_path, data)
    chunks = list(doc.chunks(chars=chars, overlap=int(chars * share), by=by))
    covered = 0
    for chunk in chunks:
        assert chunk.first <= covered + 1
        assert chunk.first <= chunk.last <= doc.line_count
        assert covered <= chunk.last
        covered = chunk.last
    assert covered == doc.line_count
    assert len(chunks) <= max(1, len(data))
    if by == "lines":
        for line in doc.lines():
            size = len(line.encode("utf-8")) + 2
            within = [chunk for chunk in chunks if chunk.first <= line.number <= chunk.last]
            assert size > chars or any(line in chunk for chunk in within)


def test_an_overlap_never_repeats_a_piece_that_says_nothing_new(tmp_path):
    doc = document(tmp_path, b"short\n" + b"y" * 300 + b"\nend\n")
    chunks = list(doc.chunks(chars=100, overlap=90))
    assert [chunk for chunk in chunks if chunk.last == 1] == ["short"]
    assert chunks[-1].endswith("end")


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=12))
def test_an_escaped_text_finds_itself(text):
    assert compile_pattern(re.escape(text)).search(text.encode()) is not None
