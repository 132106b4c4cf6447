"""The HTTP headers of a request, for functions."""

from collections.abc import Iterator, Mapping

# Hidden from functions, so that a function that logs the headers, or forwards them to
# another service, does not leak a client's secrets.
CREDENTIALS = frozenset({"authorization", "cookie", "proxy-authorization"})


class Headers(Mapping[str, str]):
    """A request's HTTP headers. Names are case-insensitive.

    The values of headers with the same name are joined with commas. Headers with
    credentials are hidden; `with_credentials()` returns all headers.
    """

    def __init__(
        self, headers: Mapping[bytes, bytes], *, credentials: bool = False
    ) -> None:
        self._encoded = headers
        self._has_credentials = credentials

    def with_credentials(self) -> "Headers":
        """Return the headers with `Authorization` and cookies."""
        return Headers(self._encoded, credentials=True)

    def __getitem__(self, name: str) -> str:
        """Return the value of a header. Raises KeyError."""
        lowered = name.lower()
        if self._shows(lowered):
            value = self._encoded.get(lowered.encode("latin-1", "replace"))
            if value is not None:
                return value.decode("latin-1")
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names, in lower case."""
        for encoded in self._encoded:
            name = encoded.decode("latin-1")
            if self._shows(name):
                yield name

    def __len__(self) -> int:
        """Return the number of headers."""
        return sum(1 for _ in self)

    def __repr__(self) -> str:
        return f"<Headers {sorted(self)}>"

    def _shows(self, name: str) -> bool:
        return self._has_credentials or name not in CREDENTIALS


NO_HEADERS = Headers({})
