"""Tell `bedplate run` where a step ends and which phases it has.

    import bedplate

    for batch in batches:
        with bedplate.phase("forward"):
            loss = model(batch)
        ...
        bedplate.step()

Most PyTorch jobs need none of this: `bedplate run -- python train.py` sees DataLoader, backward,
optimizer and collectives by itself. Call `step()` where a step is not an optimizer step (inference,
several optimizers, a loop without torch), and it takes precedence.

Outside `bedplate run` every function here is a no-op of well under a microsecond, so the calls can
stay in the script.
"""

import functools
import inspect
import sys
from types import TracebackType
from typing import TYPE_CHECKING, Any, Callable, List, Optional, Type, TypeVar, Union

__all__ = ["__version__", "active", "phase", "step"]
__version__ = "0.1.0"

_Function = TypeVar("_Function", bound=Callable[..., Any])

# sitecustomize of `bedplate run` has loaded the hook before any line of the script, or it never
# will: looking once is enough.
_hook = sys.modules.get("_bedplate_hook")
_user: Any = None
if _hook is not None:
    try:
        from _bedplate_hook import user as _user  # type: ignore[import-not-found,no-redef]
    except Exception as _problem:
        _hook.off("bedplate package", _problem)


class _NoPhase:
    """The phase outside `bedplate run`: one object for all, it holds nothing."""

    __slots__ = ()

    if TYPE_CHECKING:

        def __enter__(self) -> Any: ...

        def __exit__(
            self,
            kind: Optional[Type[BaseException]],
            error: Optional[BaseException],
            traceback: Optional[TracebackType],
        ) -> None: ...

    else:
        # A C function that takes any arguments and returns something false: entering and leaving
        # through it takes half the time of two empty Python methods.
        __enter__ = __exit__ = "".format

    def __call__(self, function: _Function) -> _Function:
        return function


class _Phase:
    """A named part of a step. Reusable, and reentrant in one thread."""

    __slots__ = ("_name", "_open")

    def __init__(self, name: str) -> None:
        self._name = str(name)
        self._open: List[Any] = []

    def __enter__(self) -> "_Phase":
        self._open.append(_user.phase_begin(self._name))
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]] = None,
        error: Optional[BaseException] = None,
        traceback: Optional[TracebackType] = None,
    ) -> None:
        _user.phase_end(self._name, self._open.pop())

    def __call__(self, function: _Function) -> _Function:
        name = self._name
        if inspect.iscoroutinefunction(function):

            async def timed_coroutine(*args: Any, **kwargs: Any) -> Any:
                with _Phase(name):
                    return await function(*args, **kwargs)

            wrapper: Any = timed_coroutine
        else:

            def timed(*args: Any, **kwargs: Any) -> Any:
                with _Phase(name):
                    return function(*args, **kwargs)

            wrapper = timed
        functools.update_wrapper(wrapper, function)
        return wrapper  # type: ignore[no-any-return]


_NO_PHASE = _NoPhase()

if _user is None:

    def step() -> None:
        """Marks the end of a step. Takes precedence over optimizer steps as the boundary."""

    def phase(name: str) -> Union[_Phase, _NoPhase]:
        """Times a named part of a step: `with phase("forward"): ...` or `@phase("forward")`.

        Phases may nest and may run in several threads. The names "validation" and "eval" are
        known to the report as evaluation, which is not counted as a slow step.
        """
        return _NO_PHASE

    def active() -> bool:
        """True inside `bedplate run` when the events of this process are being recorded."""
        return False

else:

    def step() -> None:
        """Marks the end of a step. Takes precedence over optimizer steps as the boundary."""
        _user.step()

    def phase(name: str) -> Union[_Phase, _NoPhase]:
        """Times a named part of a step: `with phase("forward"): ...` or `@phase("forward")`.

        Phases may nest and may run in several threads. The names "validation" and "eval" are
        known to the report as evaluation, which is not counted as a slow step.
        """
        return _Phase(name)

    def active() -> bool:
        """True inside `bedplate run` when the events of this process are being recorded."""
        return bool(_hook.active())  # type: ignore[union-attr]
