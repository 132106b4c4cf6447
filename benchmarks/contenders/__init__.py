"""The servers that the benchmarks compare.

`table.py` lists them, `toolchains.py` says how a program of each language is built, and
`builds.py` builds them and keeps the builds. `python -m benchmarks.contenders` builds
all of them, or those that you name, and prints their versions and differences.

Each folder beside these modules has the program of one implementation, or several. The
programs do the same work and repeat each other on purpose: each runs in an environment
of its own, imports only the library that it measures, and is written as the
documentation of that library recommends. Code that they shared would be measured with
them. A test checks that they return the same results.
"""
