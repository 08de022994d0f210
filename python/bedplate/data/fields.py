"""What becomes of a field on its way into a batch."""

from typing import Any, Dict, Optional, Sequence, Tuple

from .dtypes import NUMBERS


class Spec:
    """Made by the functions below; given to `Loader(fields={"name": spec})`.

    `name` may list alternatives, "jpg|jpeg|png": the first that a sample has. Without a spec a
    field is taken as it is: numbers of one shape become a tensor, bytes and text a list. The name
    "__key__" stands for the sample's own, where the format has such.
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


def cast(dtype: str) -> Spec:
    """Numbers of one shape in another dtype → [batch, …]: uint16 tokens as int64, for instance.

    A value that does not fit is a `CorruptError` of its sample; floats are rounded.
    """
    if dtype not in NUMBERS:
        raise ValueError("cast() takes one of %s, not %r" % (", ".join(NUMBERS), dtype))
    return Spec(kind="cast", dtype=NUMBERS[dtype])


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
    background: Tuple[int, int, int] = (0, 0, 0),
    alpha: str = "drop",
    exif: bool = True,
    damage: str = "refuse",
    max_pixels: int = 178_956_970,
) -> Spec:
    """A JPEG or PNG → uint8 [batch, height, width, channels], or [batch, channels, height, width].

    fit       "stretch"; "center_crop" (the short side to `resize` pixels, then the middle);
              "random_resized_crop" (`scale` and `ratio` as in torchvision); "pad" (the whole
              picture in the middle of `background`)
    flip      probability of a mirror, left to right
    channels  3: RGB; 1: grey
    layout    "hwc" or "chw"
    alpha     "drop": the colours as stored; "compose": over `background` (RGB)
    exif      turn the picture upright by its orientation
    damage    "refuse": a picture that is cut off or damaged is bad; "accept": what can be decoded
    max_pixels  a larger picture is bad: a small file can claim a huge one

    What is random follows from the loader's seed, the epoch and the sample's position in it: the
    same for any number of ranks and threads. What becomes of each kind of file: docs/decode.md.
    """
    if fit not in _FITS:
        raise ValueError("image(fit=) takes one of %s, not %r" % (", ".join(_FITS), fit))
    if layout not in ("hwc", "chw"):
        raise ValueError("image(layout=) takes hwc or chw, not %r" % (layout,))
    if alpha not in ("drop", "compose"):
        raise ValueError("image(alpha=) takes drop or compose, not %r" % (alpha,))
    if damage not in ("refuse", "accept"):
        raise ValueError("image(damage=) takes refuse or accept, not %r" % (damage,))
    colour = [int(c) for c in background]
    if len(colour) != 3 or not all(0 <= c <= 255 for c in colour):
        raise ValueError("image(background=) takes three numbers from 0 to 255, not %r" % (background,))
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
        background=colour,
        compose_alpha=alpha == "compose",
        exif=bool(exif),
        accept_damage=damage == "accept",
        max_pixels=int(max_pixels),
    )


def _pair(values: Sequence[float]) -> Tuple[float, float]:
    low, high = values
    return float(low), float(high)
