"""Files that are the same in two tox environments take room only once."""

from pathlib import Path

from tests.support.tox_install import share, share_with_siblings


def environment(folder: Path, **files: str) -> Path:
    """Return the packages of a new environment with these files."""
    packages = folder / "lib" / "site-packages"
    packages.mkdir(parents=True)
    for name, content in files.items():
        (packages / name).write_text(content, encoding="utf-8")
    return packages


def test_files_with_the_same_content_become_one_file(tmp_path: Path) -> None:
    first = environment(tmp_path / "first", same="same", changed="one")
    second = environment(tmp_path / "second", same="same", changed="two")
    share(second, first)
    assert (second / "same").samefile(first / "same")
    assert not (second / "changed").samefile(first / "changed")
    assert (second / "changed").read_text(encoding="utf-8") == "two"


def test_files_of_one_environment_only_stay_in_it(tmp_path: Path) -> None:
    first = environment(tmp_path / "first", theirs="theirs")
    second = environment(tmp_path / "second", ours="ours")
    share(second, first)
    assert [file.name for file in first.iterdir()] == ["theirs"]
    assert [file.name for file in second.iterdir()] == ["ours"]


def test_files_with_other_permissions_are_not_shared(tmp_path: Path) -> None:
    first = environment(tmp_path / "first", program="run")
    second = environment(tmp_path / "second", program="run")
    (first / "program").chmod(0o444)
    (second / "program").chmod(0o666)
    share(second, first)
    assert not (second / "program").samefile(first / "program")


def test_an_environment_shares_with_all_beside_it(tmp_path: Path) -> None:
    first = environment(tmp_path / "first", tests="tests")
    second = environment(tmp_path / "second", types="types")
    (tmp_path / "log").touch()
    third = environment(tmp_path / "third", tests="tests", types="types")
    share_with_siblings(tmp_path / "third", third)
    assert (third / "tests").samefile(first / "tests")
    assert (third / "types").samefile(second / "types")


def test_a_file_that_is_removed_in_one_environment_stays_in_the_other(
    tmp_path: Path,
) -> None:
    first = environment(tmp_path / "first", same="same")
    second = environment(tmp_path / "second", same="same")
    share(second, first)
    (first / "same").unlink()
    assert (second / "same").read_text(encoding="utf-8") == "same"
