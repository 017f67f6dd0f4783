"""Graphs to measure with: a name, and a function from a number of slices to the slices, always the same ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from dispatch.slice import Slice, TouchSet

WIDTH = 100  #: slices in a layer of `layered`; of the previous layer each depends on three
_STRIDE = 37  # three steps of it stay apart modulo WIDTH
GLOB_EVERY = 100  #: so many of `files` bring one that touches all of them


def free(count: int) -> Iterator[Slice]:
    """Slices that have nothing to do with one another."""
    return (Slice(f"s{i}") for i in range(count))


def layered(count: int) -> Iterator[Slice]:
    """Layers of a hundred; each slice depends on three of the layer before."""
    for i in range(count):
        layer, place = divmod(i, WIDTH)
        above = (layer - 1) * WIDTH
        before = tuple(f"s{above + (place + k * _STRIDE) % WIDTH}" for k in range(3)) if layer else ()
        yield Slice(f"s{i}", depends_on=before)


def chain(count: int) -> Iterator[Slice]:
    """Each depends on the one before: nothing ever runs side by side."""
    return (Slice(f"s{i}", depends_on=(f"s{i - 1}",) if i else ()) for i in range(count))


def fan(count: int) -> Iterator[Slice]:
    """One, then all others side by side, then one that depends on them all."""
    last = count - 1
    middle = tuple(f"s{i}" for i in range(1, last))
    for i in range(count):
        if i == last and middle:
            yield Slice(f"s{i}", depends_on=middle)
        else:
            yield Slice(f"s{i}", depends_on=("s0",) if i else ())


def hotspot(count: int) -> Iterator[Slice]:
    """All need one hotspot: one runs at a time."""
    return (Slice(f"s{i}", touch=TouchSet(hotspots=("schema",))) for i in range(count))


def glob(count: int) -> Iterator[Slice]:
    """All change what is under one glob: one runs at a time."""
    return (Slice(f"s{i}", touch=TouchSet(paths=("src/**",))) for i in range(count))


def files(count: int) -> Iterator[Slice]:
    """Each changes a file of its own, but every hundredth all that is under the glob which covers these files."""
    paths = (f"src/part{i}.py" if i % GLOB_EVERY else "src/**" for i in range(count))
    return (Slice(f"s{i}", touch=TouchSet(paths=(path,))) for i, path in enumerate(paths))


SHAPES: dict[str, Callable[[int], Iterator[Slice]]] = {
    shape.__name__: shape for shape in (free, layered, chain, fan, hotspot, glob, files)
}
