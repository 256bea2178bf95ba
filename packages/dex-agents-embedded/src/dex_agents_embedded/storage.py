"""What can be done with an engine's directory: back it up, check it, take a Flow out, put one in, delete one.

All functions block. Backups, checks and exports work while an engine runs on the directory; imports and purges do not.
"""

from ._store.erasing import purge_flow
from ._store.integrity import check_integrity
from ._store.transfer import backup, export_flow, import_flows

__all__ = ["backup", "check_integrity", "export_flow", "import_flows", "purge_flow"]
