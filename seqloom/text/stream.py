"""Open a data file, plain or compressed (known by its first bytes); no file is trusted to be harmless."""

import codecs
import io
import lzma
import zlib
from pathlib import Path
from typing import IO, Any, Protocol, cast

from seqloom.errors import DataError, ModelError, UsageError
from seqloom.files import explained

COMPRESSED = {b"\x1f\x8b": "gz", b"\xfd7zXZ\x00": "xz", b"\x28\xb5\x2f\xfd": "zst"}
PARQUET = b"PAR1"
MAX_RATIO = (
    200  # English compresses 3 to 5 times; a file that decompresses to 200 times its size is an attack or not text
)
MAX_BYTES = 256 << 30
FREE_BYTES = 64 << 20  # below this the ratio is not checked: small repetitive files are fine
_MEMORY = 512 << 20  # memory for the window of a decompressor
_BLOCK = 1 << 18

# files that people give by mistake
_BINARY = {
    b"\x89PNG": "a PNG picture",
    b"\xff\xd8\xff": "a JPEG picture",
    b"GIF8": "a GIF picture",
    b"%PDF": "a PDF document",
    b"\x7fELF": "a program",
    b"PK\x03\x04": "a zip archive",
    b"SQLite format 3": "a database",
    b"\x80\x04\x95": "a pickle",
    b"BZh": "a bzip2 archive",
    b"7z\xbc\xaf": "a 7z archive",
    b"MThd": "a MIDI file (prepare songs with --tokenizer events)",
    codecs.BOM_UTF16_LE: "UTF-16 text (save it as UTF-8, or give --encoding utf-16 where there is that option)",
    codecs.BOM_UTF16_BE: "UTF-16 text (save it as UTF-8, or give --encoding utf-16 where there is that option)",
}


class _Decompressor(Protocol):
    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int) -> bytes: ...


class _Zlib:
    """zlib behind the interface of the standard library's newer decompressors: it keeps its own rest."""

    def __init__(self) -> None:
        self._inner = zlib.decompressobj(wbits=31)

    @property
    def eof(self) -> bool:
        return self._inner.eof

    @property
    def unused_data(self) -> bytes:
        return self._inner.unused_data

    def decompress(self, data: bytes, max_length: int) -> bytes:
        return self._inner.decompress(self._inner.unconsumed_tail + data, max_length)


class _Zstd:
    """zstandard behind the same interface. It has no limit on output, so it is fed little by little."""

    _STEP = 4096  # at most about 128 MB out of it

    def __init__(self) -> None:
        zstandard = _zstandard()
        self._inner = zstandard.ZstdDecompressor(max_window_size=1 << 27).decompressobj()
        self._error = zstandard.ZstdError
        self._input, self._output = b"", b""

    @property
    def eof(self) -> bool:
        return bool(self._inner.eof) and not self._output

    @property
    def unused_data(self) -> bytes:
        return bytes(self._inner.unused_data) + self._input

    def decompress(self, data: bytes, max_length: int) -> bytes:
        self._input += data
        while not self._output and self._input and not self._inner.eof:
            step, self._input = self._input[: self._STEP], self._input[self._STEP :]
            try:
                self._output = self._inner.decompress(step)
            except self._error as error:
                raise EOFError(str(error)) from None
        found, self._output = self._output[:max_length], self._output[max_length:]
        return found


class _WrappedFile(io.RawIOBase):
    """A file made from the bytes of another file, which it closes with itself."""

    _file: IO[bytes]

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        self._file.close()
        super().close()


class _DecompressedFile(_WrappedFile):
    """A compressed file as plain bytes, also of several concatenated streams, within the limits on ratio and size."""

    def __init__(self, file: IO[bytes], kind: str, path: Path):
        self._file, self._kind, self._path = file, kind, path
        self._rest = b""
        self._unpacker = self._new()
        self._fresh = True  # no byte of the current stream has been read yet
        self._out = 0

    def _new(self) -> _Decompressor:
        if self._kind == "gz":
            return _Zlib()
        if self._kind == "zst":
            return _Zstd()
        return lzma.LZMADecompressor(memlimit=_MEMORY)

    def readinto(self, buffer: Any, /) -> int:
        view = memoryview(buffer).cast("B")
        try:
            data = self._next(len(view))
        except (zlib.error, lzma.LZMAError, EOFError) as error:
            raise DataError(
                f"{self._path}: damaged or truncated ({error}): decompress it yourself or download it again"
            ) from None
        self._out += len(data)
        check_growth(self._path, self._out, self._file.tell())
        view[: len(data)] = data
        return len(data)

    def _next(self, size: int) -> bytes:
        hungry = False
        while True:
            if self._unpacker.eof:
                self._rest = self._unpacker.unused_data or self._rest
                self._unpacker, self._fresh, hungry = self._new(), True, False
            block = b""
            if self._rest or hungry or self._fresh:
                block, self._rest = self._rest or self._file.read(_BLOCK), b""
                if self._fresh:
                    block = block.lstrip(b"\0") or self._file.read(_BLOCK)  # padding between streams is allowed
                if not block:
                    if self._fresh:
                        return b""
                    raise EOFError("the compressed data ends early")
            self._fresh = False
            data = self._unpacker.decompress(block, size)
            if data:
                return data
            hungry = True


class _RecodedFile(_WrappedFile):
    """Text of another encoding as UTF-8."""

    def __init__(self, file: io.BufferedReader, encoding: str, path: Path):
        self._file, self._encoding, self._path = file, encoding, path
        self._decoder = codecs.getincrementaldecoder(encoding)()
        self._waiting, self._read = b"", 0

    def readinto(self, buffer: Any, /) -> int:
        view = memoryview(buffer).cast("B")
        while not self._waiting:
            block = self._file.read(_BLOCK)
            try:
                self._waiting = self._decoder.decode(block, final=not block).encode("utf-8", "surrogatepass")
            except UnicodeDecodeError as error:
                raise DataError(
                    f"{self._path}: byte {self._read + error.start:,} is not valid {self._encoding} ({error.reason}): give "
                    "another --encoding"
                ) from None
            self._read += len(block)
            if not block:
                break
        data, self._waiting = self._waiting[: len(view)], self._waiting[len(view) :]
        view[: len(data)] = data
        return len(data)


def check_encoding(name: str) -> str:
    """The usual name of a text encoding; UsageError for an unknown one."""
    try:
        found = codecs.lookup(name)
        found.incrementaldecoder().decode(b"")
        if not found._is_text_encoding:
            raise LookupError
    except (LookupError, TypeError, ValueError, AttributeError):
        raise UsageError(f"--encoding {name}: unknown; for example utf-8, cp1252, latin-1, utf-16, shift_jis") from None
    return found.name


def guess_encoding(sample: bytes) -> str:
    """A guess for text that is not UTF-8: by its first bytes, otherwise the most common eight-bit encoding that fits."""
    if sample.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    try:
        sample.decode("cp1252")
    except UnicodeDecodeError:
        return "latin-1"
    return "cp1252"


def check_growth(path: Path, unpacked: int, packed: int) -> None:
    if unpacked > MAX_BYTES:
        raise DataError(f"{path}: decompresses to more than {MAX_BYTES >> 30} GB: split it into smaller files")
    if unpacked > FREE_BYTES and unpacked > MAX_RATIO * max(packed, 1):
        raise DataError(
            f"{path}: decompresses to more than {MAX_RATIO} times its size, which is unusual for text: decompress it yourself"
        )


class InputFile:
    """An open data file: its decompressed bytes, and how much of the file on disk has been read (for progress)."""

    def __init__(self, path: Path, encoding: str | None = None):
        """encoding: of a text file that is not UTF-8; its bytes are converted to UTF-8."""
        self.path = path
        check_path(path)
        with explained(path):
            self._file = open(path, "rb")  # noqa: SIM115 (closed by close)
            self.size = path.stat().st_size
            head = self._file.read(8)
            self._file.seek(0)
        self.compression = next((name for magic, name in COMPRESSED.items() if head.startswith(magic)), None)
        self.bytes: io.BufferedReader
        if self.compression is None:
            self.bytes = io.BufferedReader(cast(io.RawIOBase, self._file), _BLOCK)
        else:
            self.bytes = io.BufferedReader(_DecompressedFile(self._file, self.compression, path), _BLOCK)
        if encoding is not None and not head.startswith(PARQUET):
            self.bytes = io.BufferedReader(_RecodedFile(self.bytes, encoding, path), _BLOCK)

    def position(self) -> int:
        """Bytes of the file on disk that have been read."""
        return self.size if self._file.closed else self._file.tell()

    def __enter__(self) -> "InputFile":
        return self

    def __exit__(self, *_: object) -> None:
        self.bytes.close()
        self._file.close()


def check_path(path: Path) -> None:
    if not path.exists():
        raise DataError(f"{path}: no such file: check the name")
    if path.is_dir():
        raise DataError(f"{path} is a folder: name the files in it, for example {path}/*.txt")


def check_text(path: Path, head: bytes) -> None:
    """Raise DataError for a file that does not begin with text, and say what it is."""
    for magic, name in _BINARY.items():
        if head.startswith(magic):
            raise DataError(f"{path}: binary file at offset 0, this looks like {name}: give text, jsonl or parquet")
    nuls = head.count(b"\0")
    if nuls >= 8 and nuls * 1000 > len(head):
        first = head.index(b"\0")
        raise DataError(f"{path}: binary file, first NUL byte at offset {first}: give text, jsonl or parquet")


def _zstandard() -> Any:
    try:
        import zstandard
    except ImportError:
        raise ModelError("this needs 'zstandard': pip install \"seqloom[data]\"") from None
    return zstandard
