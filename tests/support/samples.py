"""Inputs that several tests and the fuzzer begin with."""

from __future__ import annotations

DRAFTS = [
    "https://json-schema.org/draft/2020-12/schema",
    "https://json-schema.org/draft/2019-09/schema",
    "http://json-schema.org/draft-07/schema#",
    "http://json-schema.org/draft-07/schema",
    "http://json-schema.org/draft-06/schema#",
    "http://json-schema.org/draft-04/schema#",
]

MATCHES: list[tuple[str, str, dict[str, str] | None]] = [
    ("a://b", "a://b", {}),
    ("a://b", "a://bc", None),
    ("a://b", "a://", None),
    ("a://{x}", "a://1", {"x": "1"}),
    ("a://{x}", "a://", None),
    ("a://{x}", "a://1/2", None),
    ("a://{x}", "b://1", None),
    ("a://{x}", "a://a%20b", {"x": "a b"}),
    ("a://{x}", "a://a%2Fb", None),
    ("a://{x}", "a://..%2F..%2Fetc", None),
    ("a://{+x}", "a://a%2Fb", {"x": "a/b"}),
    ("a://{x}", "a://%", {"x": "%"}),
    ("a://{x}", "a://é", {"x": "é"}),
    ("a://{+x}", "a://1/2/3", {"x": "1/2/3"}),
    ("a://{+x}", "a://", None),
    ("a://{x}/", "a://1", None),
    ("a://{x}/", "a://1/", {"x": "1"}),
    ("a://{x}/{y}", "a://1/2", {"x": "1", "y": "2"}),
    ("a://{x}/{y}", "a://1", None),
    ("a://{x}/{y}", "a:///2", None),
    ("a://{x}/{y}", "a://1/2/3", None),
    ("a://{x}/{+y}", "a://1/2/3", {"x": "1", "y": "2/3"}),
    ("a://{+x}/z", "a://1/z/z", {"x": "1/z"}),
    ("a://{x}-{y}.txt", "a://1-2.txt", {"x": "1", "y": "2"}),
    ("a://{x}-{y}.txt", "a://1-2-3.txt", {"x": "1", "y": "2-3"}),
    ("a://{x}.txt", "a://.txt", None),
    ("a://{x}.txt", "a://.txt.txt", {"x": ".txt"}),
    ("a://{x}ab", "a://ab", None),
    ("a://b/{x}/c/{y}/d", "a://b/1/c/2/d", {"x": "1", "y": "2"}),
    ("a://b/{x}/c/{y}/d", "a://b/1/c/2/e", None),
    ("a://b?q={x}", "a://b?q=1", {"x": "1"}),
]
