"""A record can be read up to the last whole page, whatever happened to the program that wrote it."""

from pathlib import Path

import pytest

from kintsugi.cli.recordfile import RecordFile, RecordWriter
from kintsugi.core.advisor.saved import SavedInvalid, saved_head

PAGE = "vllm:num_requests_running 1.0\nvllm:num_requests_waiting 2.0\n"


def text(number: int) -> str:
    return saved_head("short", f"e-{number}", float(number)) + PAGE


def written(path: Path, count: int, first: int = 0) -> bytes:
    with RecordWriter(path) as writer:
        for number in range(first, first + count):
            writer.write(text(number))
            writer.flush()
    return path.read_bytes()


def times(path: Path) -> tuple[list[float], bool]:
    file = RecordFile(path)
    return [look.time for look in file.looks()], file.cut


def test_what_is_written_is_read(tmp_path: Path) -> None:
    written(tmp_path / "a.gz", 5)
    assert times(tmp_path / "a.gz") == ([0.0, 1.0, 2.0, 3.0, 4.0], False)


def test_a_writer_that_was_killed_leaves_what_it_had_flushed(tmp_path: Path) -> None:
    with RecordWriter(tmp_path / "a.gz") as writer:
        for number in range(5):
            writer.write(text(number))
            writer.flush()
        writer.write(text(5))
        (tmp_path / "b.gz").write_bytes((tmp_path / "a.gz").read_bytes())
    assert times(tmp_path / "b.gz") == ([0.0, 1.0, 2.0, 3.0], True)


@pytest.mark.parametrize("left", [0.3, 0.6, 0.9])
def test_a_file_that_was_cut_is_read_to_its_last_whole_page(tmp_path: Path, left: float) -> None:
    whole = written(tmp_path / "a.gz", 40)
    (tmp_path / "b.gz").write_bytes(whole[: int(len(whole) * left)])
    found, cut = times(tmp_path / "b.gz")
    assert cut
    assert found == [float(n) for n in range(len(found))]
    assert 5 < len(found) < 40
    assert all(look.text == PAGE for look in RecordFile(tmp_path / "b.gz").looks())


def test_files_joined_by_cat_are_one(tmp_path: Path) -> None:
    joined = written(tmp_path / "a.gz", 2) + written(tmp_path / "b.gz", 2, first=2)
    (tmp_path / "c.gz").write_bytes(joined)
    assert times(tmp_path / "c.gz") == ([0.0, 1.0, 2.0, 3.0], False)


def test_plain_text_is_read_too(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(text(0) + text(1))
    assert times(tmp_path / "a.txt") == ([0.0, 1.0], False)


def test_an_empty_file_holds_nothing(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("")
    assert times(tmp_path / "a.txt") == ([], False)


def test_a_damaged_file_is_read_to_the_damage_and_said_to_be_damaged(tmp_path: Path) -> None:
    whole = bytearray(written(tmp_path / "a.gz", 40))
    middle = len(whole) // 2
    whole[middle : middle + 40] = b"\xff" * 40
    (tmp_path / "b.gz").write_bytes(bytes(whole))
    file = RecordFile(tmp_path / "b.gz")
    found = [look.time for look in file.looks()]
    assert found == [float(n) for n in range(len(found))]
    assert 10 < len(found) < 25
    assert f"{tmp_path / 'b.gz'} is damaged (" in file.note


@pytest.mark.parametrize("place", range(12, 1500, 37))
def test_one_flipped_byte_costs_no_page_well_before_it(tmp_path: Path, place: int) -> None:
    whole = bytearray(written(tmp_path / "a.gz", 40))
    at = place % len(whole)
    whole[at] ^= 0x55
    (tmp_path / "b.gz").write_bytes(bytes(whole))
    file = RecordFile(tmp_path / "b.gz")
    before = RecordFile(tmp_path / "cut.gz")
    before.path.write_bytes(bytes(whole[:at]))
    readable = [look.time for look in before.looks()][:-1]  # the damage may look like a line of the last
    try:
        found = [look.time for look in file.looks()]
    except SavedInvalid:
        found = []
    assert found[: len(readable)] == readable
    assert file.damage or file.cut


@pytest.mark.parametrize("tail", [b"\0" * 512, b"garbage", b"\x1f", b"\x1f\x8b", b"\x1fx"])
def test_what_follows_a_whole_member_takes_no_page_from_it(tmp_path: Path, tail: bytes) -> None:
    (tmp_path / "b.gz").write_bytes(written(tmp_path / "a.gz", 5) + tail)
    file = RecordFile(tmp_path / "b.gz")
    assert [look.time for look in file.looks()] == [0.0, 1.0, 2.0, 3.0, 4.0]
    assert file.note


@pytest.mark.parametrize("between", [b"", b"garbage", b"\0" * 70_000])
def test_a_whole_member_behind_a_cut_one_is_read(tmp_path: Path, between: bytes) -> None:
    cut = written(tmp_path / "a.gz", 40)[:-100]
    (tmp_path / "c.gz").write_bytes(cut + between + written(tmp_path / "b.gz", 5, first=100))
    file = RecordFile(tmp_path / "c.gz")
    looks = list(file.looks())
    found = [look.time for look in looks]
    first = found[: found.index(100.0)]
    assert first == [float(n) for n in range(len(first))]
    assert len(first) > 30
    assert found[len(first) :] == [100.0, 101.0, 102.0, 103.0, 104.0]
    assert all(look.text == PAGE for look in looks)
    assert "is damaged" in file.note


def test_a_file_that_is_no_text_is_said_to_be_none(tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(b"\x89PNG\r\n\x1a\n\xff\xfe\n")
    with pytest.raises(SavedInvalid, match="is no text and no gzip file"):
        times(tmp_path / "a.bin")


def test_nothing_that_is_there_is_written_over(tmp_path: Path) -> None:
    (tmp_path / "a.gz").write_text("precious")
    with pytest.raises(FileExistsError):
        RecordWriter(tmp_path / "a.gz")
