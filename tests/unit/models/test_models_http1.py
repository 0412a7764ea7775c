"""The HTTP/1.1 response parser: any cut of the same bytes gives the same answer, and nothing else gets through."""

import contextlib
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlm_worker.models.http1 import NotHttp, ResponseParser

bodies = st.binary(max_size=300)


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    edges = [0, *sorted({cut % (len(data) + 1) for cut in cuts}), len(data)]
    return [data[a:b] for a, b in itertools.pairwise(edges)]


def feed(data: list[bytes]):
    parser = ResponseParser()
    for piece in data:
        if (response := parser.feed(piece)) is not None:
            return response
    return parser.end()


@given(
    bodies,
    st.integers(200, 599).filter(lambda s: s not in {204, 304}),
    st.lists(st.integers(0, 2000), max_size=8),
)
def test_a_body_with_a_length_is_whole_however_it_is_cut(body: bytes, status: int, cuts: list[int]) -> None:
    data = b"HTTP/1.1 %d Fine\r\nContent-Length: %d\r\nX-A:  b \r\n\r\n%b" % (status, len(body), body)
    response = feed(pieces(data, cuts))
    assert (response.status, response.body, response.headers["x-a"], response.keeps_alive) == (
        status,
        body,
        "b",
        True,
    )


@given(st.lists(st.binary(min_size=1, max_size=50), max_size=6), st.lists(st.integers(0, 2000), max_size=8))
def test_a_chunked_body_is_whole_however_it_is_cut(chunks: list[bytes], cuts: list[int]) -> None:
    framed = (
        b"".join(b"%x;note=1\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks)
        + b"0\r\nTrailer: x\r\n\r\n"
    )
    response = feed(pieces(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + framed, cuts))
    assert (response.body, response.keeps_alive) == (b"".join(chunks), True)


@given(bodies, st.lists(st.integers(0, 2000), max_size=8))
def test_a_body_that_ends_with_the_connection_is_whole_at_its_end(body: bytes, cuts: list[int]) -> None:
    response = feed(pieces(b"HTTP/1.1 200 OK\r\n\r\n" + body, cuts))
    assert (response.body, response.keeps_alive) == (body, False)


@given(st.binary(max_size=400))
def test_arbitrary_bytes_are_an_answer_a_wait_or_not_http(data: bytes) -> None:
    with contextlib.suppress(NotHttp):
        feed([data])


def test_an_interim_answer_is_passed_over() -> None:
    assert (
        feed([b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"]).body == b"ok"
    )


def test_a_half_answer_is_none() -> None:
    assert feed([b"HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\nhalf"]) is None


@pytest.mark.parametrize(
    "head",
    [
        b"Connection: close\r\nContent-Length: 2\r\n\r\nok",
        b"Content-Length: 2\r\n\r\nok and more than was said",
    ],
)
def test_a_connection_that_says_close_or_more_than_it_should_is_not_kept(head: bytes) -> None:
    response = feed([b"HTTP/1.1 200 OK\r\n" + head])
    assert (response.body, response.keeps_alive) == (b"ok", False)
