"""Objects that stand for something in this process: a library, threads, connections."""

from __future__ import annotations

from typing import ClassVar, NoReturn, SupportsIndex

__all__ = ["ProcessBound"]


class ProcessBound:
    """Refuses to be copied or pickled: a copy would share what the original releases.

    Attributes:
        INSTEAD: what to do instead.
    """

    INSTEAD: ClassVar[str] = "use this object in this process, and load the op again in another one"

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        """Raise an error; ``copy.copy``, ``copy.deepcopy`` and ``pickle`` call this.

        Raises:
            TypeError: always, like a module or a pybind11 object.
        """
        msg = f"copying or pickling {type(self).__name__} failed: it is bound to the process that made it. Fix: {self.INSTEAD}."
        raise TypeError(msg)
