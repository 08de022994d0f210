"""Several data sets drawn from in fixed shares."""

import math
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple, Union

from .dataset import Dataset

Parts = Union[Mapping[Dataset, float], Sequence[Tuple[Dataset, float]]]


class Mix:
    """Draws from data sets by weight; a data set that runs out begins its next epoch.

        Mix({web: 0.7, books: 0.3})
        Mix([(web, 0.7), (books, 0.3)], epoch=1_000_000)

    epoch   samples that make an epoch; None: as many as all data sets together have

    A row's data set comes with the batch as "__source__", its place among the parts (int64). All of
    them must have the same fields, or those that `Loader(fields=)` names, of the same types. Resuming
    is as exact as with one data set, for any number of ranks.
    """

    def __init__(self, parts: Parts, *, epoch: Optional[int] = None) -> None:
        pairs = parts.items() if isinstance(parts, Mapping) else parts
        self.parts: List[Tuple[Dataset, float]] = [(d, float(w)) for d, w in pairs]
        for dataset, _ in self.parts:
            if not isinstance(dataset, Dataset):
                raise TypeError("Mix() takes data sets, not %r" % (dataset,))
        for _, weight in self.parts:
            if not (math.isfinite(weight) and weight > 0):
                raise ValueError("a weight is %r; it must be above 0" % (weight,))
        if epoch is not None and not 1 <= epoch <= 1 << 60:
            raise ValueError("an epoch cannot have %r samples" % (epoch,))
        self.epoch = epoch

    def __len__(self) -> int:
        return self.epoch or sum(len(dataset) for dataset, _ in self.parts)

    def __repr__(self) -> str:
        return "Mix(%r)" % (self.parts,)

    def __reduce__(self) -> Any:
        options: Dict[str, Any] = {"epoch": self.epoch}
        return _mix, (self.parts, options)


def _mix(parts: List[Tuple[Dataset, float]], options: Dict[str, Any]) -> Mix:
    return Mix(parts, **options)
