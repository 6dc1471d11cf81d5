"""What the groups of an HDF5 file hold."""

import h5py

from gadget.inspection.content import FileGroup
from gadget.scan_groups import is_image_series, objects_of, scan_groups


def file_groups(file: h5py.File) -> tuple[FileGroup, ...]:
    """Describe each group of a file that holds datasets; groups of groups are told by those below them."""
    scans = scan_groups(file)
    items = dict(objects_of(file))
    folders = {name: item for name, item in items.items() if isinstance(item, h5py.Group)}
    return tuple(
        group
        for name, folder in sorted(folders.items())
        if (group := _described(name, folder, items, is_scan=name in scans)) is not None
    )


def _described(name: str, folder: h5py.Group, items: dict[str, object], *, is_scan: bool) -> FileGroup | None:
    datasets = {
        below.rpartition("/")[2]: item
        for below, item in items.items()
        if isinstance(item, h5py.Dataset) and below.rpartition("/")[0] == name
    }
    if is_scan:
        n_readouts = int(datasets["data"].shape[0])
        holds = [_count(n_readouts, "readout")]
        if "waveforms" in datasets:
            holds.append(_count(int(datasets["waveforms"].size or 0), "waveform"))
        holds.append("XML header" if "xml" in datasets else "no XML header")
        return FileGroup(name=name, kind="scan", holds=", ".join(holds), n_readouts=n_readouts)
    if is_image_series(folder):
        data = datasets["data"]
        sizes = [int(size) for size in data.shape]
        n_images = sizes[0] if sizes else 0
        pixels = " x ".join(str(size) for size in sizes[:0:-1])
        kind = "complex" if data.dtype.names or data.dtype.kind == "c" else str(data.dtype)
        holds_text = f"{_count(n_images, 'image')} of {pixels} (x, y, z, channels), {kind}"
        return FileGroup(name=name, kind="images", holds=holds_text)
    if not datasets:
        is_empty = not any(below.startswith(f"{name}/") for below in items)
        return FileGroup(name=name, kind="empty", holds="nothing") if is_empty else None
    if set(datasets) == {"xml"}:
        return FileGroup(name=name, kind="header", holds="XML header, no readouts")
    arrays = [f"{below} {item.shape} {_kind_of(item)}" for below, item in sorted(datasets.items())]
    return FileGroup(name=name, kind="arrays", holds=", ".join(arrays))


def _kind_of(stored: h5py.Dataset) -> str:
    return "records" if stored.dtype.names else str(stored.dtype)


def _count(n: int, what: str) -> str:
    return f"{n} {what}{'' if n == 1 else 's'}"
