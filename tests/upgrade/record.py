"""Records sessions with the code of today: `cd tests && python -m upgrade.record NAME` before a release.

What was recorded once is kept for ever: a release must go on with the sessions of all earlier ones.
"""

import asyncio
import shutil
import sys
import tempfile
from pathlib import Path

from dex_agents_embedded.storage import export_flow
from parity.column import COLUMNS, find_column
from support.fake_provider import FakeProvider
from upgrade.stages import PLAIN_SESSION_ID, RECORDED, SESSION_ID, pack, record_pictures, record_plain, record_sale


async def record(name: str) -> None:
    """Write the sessions of all adapters into a directory of this name, the release's."""
    target = RECORDED / name
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as temporary:
        directory = Path(temporary)
        await record_plain(directory / "plain")
        export_flow(directory / "plain", PLAIN_SESSION_ID, target / "plain.db")
        pack(target / "plain.db")
        await record_pictures(directory / "pictures")
        export_flow(directory / "pictures", PLAIN_SESSION_ID, target / "pictures.db")
        pack(target / "pictures.db")
        async with FakeProvider() as provider:
            for adapter in COLUMNS:
                await record_sale(find_column(adapter), provider, directory / adapter)
                export_flow(directory / adapter, SESSION_ID, target / f"{adapter}.db")
                pack(target / f"{adapter}.db")


if __name__ == "__main__":
    asyncio.run(record(sys.argv[1]))
