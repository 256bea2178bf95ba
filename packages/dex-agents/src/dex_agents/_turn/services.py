"""What every Step of a session Flow is given when the Flow is built."""

from dataclasses import dataclass, field

from dex_agents._storage.sealing import Sealing
from dex_agents._turn.attachment_reader import AttachmentReader
from dex_agents._turn.partial_text import PartialTexts
from dex_agents._turn.redaction import EventFeed
from dex_agents.options import AgentSessionOptions
from dex_agents.reconciliation import Reconciler, Reconcilers
from dex_agents.runner import AgentFrameworkRunner
from dex_agents.settings import SettingsResolver


@dataclass(frozen=True)
class SessionServices:
    """The agent, the application's options and the live feed of one session Flow.

    Attributes:
        runner: The agent.
        options: The application's choices.
        events: The live feed.
        agent: The Flow's name.
    """

    runner: AgentFrameworkRunner
    options: AgentSessionOptions
    events: EventFeed
    agent: str = ""
    reconcilers: Reconcilers = field(default_factory=dict[str, Reconciler])
    settings_resolver: SettingsResolver | None = None
    partial_texts: PartialTexts = field(default_factory=PartialTexts)
    attachments: AttachmentReader = field(default_factory=AttachmentReader)

    @property
    def takes_kept_objects(self) -> bool:
        """Whether the runner shares a state's objects with other Steps."""
        return getattr(self.runner, "takes_kept_objects", False) is True

    @property
    def runner_name(self) -> str:
        """What a warning calls the runner."""
        return f"the {type(self.runner).__name__} of agent {self.agent!r}"

    @property
    def sealing(self) -> Sealing:
        """What the application does to texts that are stored."""
        return Sealing(self.options.at_rest)
