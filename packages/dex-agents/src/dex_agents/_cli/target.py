"""Finds the session Flow that a command line names as `module:attribute`."""

import importlib
import inspect
import sys
import traceback
from pathlib import Path
from types import ModuleType

from dex_agents.errors import ConfigurationError, DexAgentsError
from dex_agents.session_flow import AgentSessionFlow


def load_flow(target: str) -> AgentSessionFlow:
    """Import a session Flow, also from the current directory.

    Args:
        target: `module:attribute`, where the attribute is an `AgentSessionFlow` or a function that returns one.

    Raises:
        ConfigurationError: The target has another form, or leads to nothing of this kind.
    """
    module_name, separator, attribute = target.partition(":")
    names = [*module_name.split("."), *attribute.split(".")]
    if not separator or not all(name.isidentifier() for name in names):
        raise ConfigurationError(f"target {target!r}: give module:attribute, for example shop.support:flow")
    module = _import(target, module_name)
    found: object = module
    for name in attribute.split("."):
        if not hasattr(found, name):
            raise ConfigurationError(f"target {target!r}: {module_name} has no {name!r}; {_flows_of(module)}")
        found = getattr(found, name)
    if inspect.isfunction(found):
        try:
            found = found()
        except DexAgentsError:
            raise
        except Exception as error:
            raise _broken(target, error) from error
    if not isinstance(found, AgentSessionFlow):
        raise ConfigurationError(
            f"target {target!r} is {type(found).__name__}, not an AgentSessionFlow or a function that returns one; "
            f"{_flows_of(module)}"
        )
    return found


def _import(target: str, module_name: str) -> ModuleType:
    directory = str(Path.cwd())
    if directory not in sys.path:
        sys.path.insert(0, directory)
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is not None and (module_name == error.name or module_name.startswith(error.name + ".")):
            raise ConfigurationError(
                f"target {target!r}: there is no module {error.name!r} in {directory} or among the installed ones"
            ) from error
        raise _broken(target, error) from error
    except Exception as error:
        raise _broken(target, error) from error


def _broken(target: str, error: Exception) -> ConfigurationError:
    frames = traceback.extract_tb(error.__traceback__)
    where = f"{frames[-1].filename}:{frames[-1].lineno}: " if frames else ""
    return ConfigurationError(f"target {target!r} cannot be loaded: {where}{type(error).__name__}: {error}")


def _flows_of(module: ModuleType) -> str:
    names = sorted(name for name, value in vars(module).items() if isinstance(value, AgentSessionFlow))
    return f"its session Flows are {', '.join(names)}" if names else f"{module.__name__} has no session Flow"
