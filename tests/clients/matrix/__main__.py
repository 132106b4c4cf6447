"""Write docs/clients.md again from results.json: `python -m tests.clients.matrix`."""

from tests.clients.matrix import results

results.PAGE.write_text(results.page(results.read()), encoding="utf-8")
