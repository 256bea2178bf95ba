"""What can be done with an engine's directory: back it up, check it, take a Flow out, put one in.

All functions block. Backups, checks and exports work while an engine runs on the directory; an import does not.
"""

from ._store.integrity import check_integrity
from ._store.transfer import backup, export_flow, import_flows

__all__ = ["backup", "check_integrity", "export_flow", "import_flows"]
