"""What becomes of a field on its way into a batch."""

from typing import Any, Dict, Optional, Sequence, Tuple

from .dtypes import NUMBERS


class Spec:
    """Made by the functions below; given to `Loader(fields={"name": spec})`.

    `name` may list alternatives, "jpg|jpeg|png": the first that a sample has. Without a spec a
    field is taken as it is: numbers of one shape become a tensor, bytes and text a list.
    """

    __slots__ = ("_options",)

    def __init__(self, **options: Any) -> None:
        self._options = options

    def __repr__(self) -> str:
        inside = ", ".join("%s=%r" % item for item in self._options.items())
        return "Spec(%s)" % inside

    def options(self, name: str, column: str) -> Dict[str, Any]:
        """What the C++ loader wants to hear."""
        return {"name": name, "as": column, **self._options}


def number(dtype: str = "int64") -> Spec:
    """One number a sample → [batch]: a scalar, or text such as b"3".

    A value that is no number, or does not fit the dtype, is a `CorruptError` of its sample.
    """
    if dtype not in NUMBERS:
        raise ValueError("number() takes one of %s, not %r" % (", ".join(NUMBERS), dtype))
    return Spec(kind="number", dtype=NUMBERS[dtype])


def int32() -> Spec:
    """`number("int32")`."""
    return number("int32")


def int64() -> Spec:
    """`number("int64")`."""
    return number("int64")


def float32() -> Spec:
    """`number("float32")`."""
    return number("float32")


def float64() -> Spec:
    """`number("float64")`."""
    return number("float64")


def pad(length: int, value: float = 0) -> Spec:
    """Rows of numbers, cut or filled with `value` to `length` elements → [batch, length, …]."""
    return Spec(kind="pad", length=int(length), fill=float(value))


def ragged() -> Spec:
    """Rows of numbers of different length → a list of `batch` tensors."""
    return Spec(kind="ragged")


def npy() -> Spec:
    """A .npy file of one shape and dtype → [batch, …]."""
    return Spec(kind="npy")


_FITS = ("stretch", "center_crop", "random_resized_crop", "pad")


def image(
    height: int,
    width: int,
    *,
    fit: str = "stretch",
    resize: Optional[int] = None,
    scale: Tuple[float, float] = (0.08, 1.0),
    ratio: Tuple[float, float] = (3 / 4, 4 / 3),
    flip: float = 0.0,
    channels: int = 3,
    layout: str = "hwc",
) -> Spec:
    """A JPEG or PNG → uint8 [batch, height, width, channels], or [batch, channels, height, width].

    fit       "stretch"; "center_crop" (the short side to `resize` pixels, then the middle);
              "random_resized_crop" (`scale` and `ratio` as in torchvision); "pad" (in black)
    flip      probability of a mirror, left to right
    channels  3: RGB; 1: grey
    layout    "hwc" or "chw"

    What is random follows from the loader's seed, the epoch and the sample's position in it: the
    same for any number of ranks and threads. What becomes of each kind of file: docs/decode.md.
    """
    if fit not in _FITS:
        raise ValueError("image(fit=) takes one of %s, not %r" % (", ".join(_FITS), fit))
    if layout not in ("hwc", "chw"):
        raise ValueError("image(layout=) takes hwc or chw, not %r" % (layout,))
    return Spec(
        kind="image",
        height=int(height),
        width=int(width),
        channels=int(channels),
        layout=layout,
        fit=fit,
        resize=int(resize or 0),
        scale=_pair(scale),
        ratio=_pair(ratio),
        flip=float(flip),
    )


def _pair(values: Sequence[float]) -> Tuple[float, float]:
    low, high = values
    return float(low), float(high)
