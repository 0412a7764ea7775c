"""Values against JSON Schema: what fits, what is said about what does not, and what a schema may not do."""

import http.server
import threading

import pytest

from rlm_worker.schemas import SchemaRefused, Shape, shape_of

LABEL = {
    "type": "object",
    "properties": {"label": {"enum": ["low", "high"]}, "n": {"type": "integer"}},
    "required": ["label", "n"],
    "additionalProperties": False,
}


def test_a_value_that_fits_has_no_mistakes():
    shape = Shape(LABEL)

    assert shape.fits({"label": "low", "n": 1})
    assert shape.mistakes({"label": "low", "n": 1}) == ()


def test_mistakes_name_the_place():
    told = Shape(LABEL).mistakes({"label": "loud", "n": "one"})

    assert any(mistake.startswith("label: ") for mistake in told)
    assert any(mistake.startswith("n: ") for mistake in told)


def test_mistakes_of_the_whole_answer_are_said_of_the_answer():
    assert all(mistake.startswith("the answer: ") for mistake in Shape(LABEL).mistakes({}))


def test_mistakes_are_bounded_in_number_and_length():
    shape = Shape({"type": "array", "items": {"type": "integer"}})

    told = shape.mistakes(["x" * 10_000] * 100)

    assert len(told) == 8
    assert max(map(len, told)) <= 400


@pytest.mark.parametrize("schema", [{"type": "nonsense"}, {"anyOf": []}, {"type": "string", "pattern": "("}])
def test_a_schema_that_is_none_is_refused(schema):
    with pytest.raises(SchemaRefused, match="not a usable JSON Schema"):
        Shape(schema)


def test_the_same_schema_is_compiled_once_whatever_the_order_of_its_keys():
    assert shape_of({"type": "object", "title": "x"}) is shape_of({"title": "x", "type": "object"})


def test_references_inside_the_schema_work():
    shape = Shape({"$defs": {"n": {"type": "integer"}}, "properties": {"a": {"$ref": "#/$defs/n"}}})

    assert shape.fits({"a": 1})
    assert not shape.fits({"a": "x"})


@pytest.mark.requirement("S3-BOUND-9")
def test_a_schema_of_a_cell_cannot_make_the_worker_open_a_connection():
    asked = []

    class Server(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            self.send_error(404)

    with http.server.HTTPServer(("127.0.0.1", 0), Server) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}/stolen"
        with pytest.raises(SchemaRefused, match="inside the schema"):
            Shape({"type": "object", "properties": {"a": {"$ref": address}}})
        server.shutdown()

    assert asked == []


def test_a_schema_of_a_cell_cannot_make_the_worker_read_a_file(tmp_path):
    file = tmp_path / "schema.json"
    file.write_text('{"type": "integer"}')

    with pytest.raises(SchemaRefused, match="inside the schema"):
        Shape({"type": "object", "properties": {"a": {"$ref": file.as_uri()}}})
