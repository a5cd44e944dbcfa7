"""`data_path` finds what is there and says what is there instead of what is not."""

import pytest

from labkit.keeping.paths import checkout, data_path


def test_the_folder_itself_is_found() -> None:
    root = checkout()
    assert root is not None, "the tests run from a checkout"
    assert data_path() == root / "data"


def test_a_missing_file_names_what_is_there() -> None:
    with pytest.raises(FileNotFoundError, match=r"there is no data/no-such-file\.txt.*README\.md"):
        data_path("no-such-file.txt")
