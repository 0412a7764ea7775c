"""The demo's evidence is the standard library's source and nothing else."""

from controlplane.cli.demo import source_tree, standard_library


def test_packages_of_others_are_left_out(tmp_path):
    library = tmp_path / "python3"
    (library / "json").mkdir(parents=True)
    (library / "site-packages" / "other").mkdir(parents=True)
    (library / "ast.py").write_text("# XXX\n")
    (library / "json" / "decoder.py").write_text("# XXX\n")
    (library / "json" / "decoder.so").write_bytes(b"\0")
    (library / "site-packages" / "other" / "x.py").write_text("# XXX\n")
    (library / "link.py").symlink_to(library / "ast.py")

    copy = source_tree(library, keep_in=tmp_path / "demo")

    found = sorted(str(path.relative_to(copy)) for path in copy.rglob("*") if path.is_file())
    assert found == ["ast.py", "json/decoder.py"]
    assert copy.name == "python3"
    assert source_tree(library, keep_in=tmp_path / "demo") == copy
    assert list(copy.parent.iterdir()) == [copy]


def test_a_library_without_them_is_used_as_it_lies(tmp_path):
    (tmp_path / "json").mkdir()

    assert source_tree(tmp_path, keep_in=tmp_path / "demo") == tmp_path


def test_there_is_a_standard_library_here():
    assert (standard_library() / "ast.py").is_file()
