"""Who is in an image, and who validates: subjects are never split."""

import hashlib
import os
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import PurePosixPath

import numpy as np

from reconlib.training.images.errors import DataError
from reconlib.training.images.settings import ImageSettings

_HASHED = "\0"
_KEY = os.urandom(32)
_DATASET = re.compile(r"ds\d{3,}")
_SUBJECT = re.compile(
    r"(?:sub-[a-z0-9]+|(?:subj|subject|sub|patient|pat|participant|volunteer|case)[-_ ]?\d+[a-z]?)"
    r"(?![a-z0-9])",
    re.IGNORECASE,
)


def subject_of_identifier(identifier: str) -> str:
    """Name a subject by a hash of an identifier (a patient's, say), which is kept nowhere.

    The hash has a key that lives as long as the process, so nobody can look up short identifiers in it.
    """
    digest = hashlib.blake2b(identifier.strip().encode(), key=_KEY, digest_size=16)
    return _HASHED + digest.hexdigest()


def subject_of_path(name: str) -> str:
    """Name the subject of a file by its path below the folder that is read.

    The first part of the path that starts like ``sub-01`` (BIDS), ``patient12``, ``case_7``, ... names the
    subject; where an OpenNeuro accession number (``ds000011``) comes before it, both do. What else is in the
    path, such as a folder per contrast, does not matter: two contrasts of ``sub-01`` must not be parted.
    Without such a part each file is a subject.
    """
    dataset = ""
    for part in PurePosixPath(name).parts:
        found = _SUBJECT.match(part)
        if found:
            return dataset + found[0].lower()
        if _DATASET.fullmatch(part):
            dataset = f"{part}/"
    return name


def subject_of_file(name: str, settings: ImageSettings, *, identifier: str | None = None) -> str:
    """Name the subject of the file ``name``, whose own word on who it shows is ``identifier``."""
    if settings.subject_pattern is not None:
        found = re.search(settings.subject_pattern, name)
        group = found and (found[1] if found.re.groups else found[0])
        if not group:
            raise DataError(
                f"{name}: subject_pattern {settings.subject_pattern!r} finds no subject in this path; "
                "change it, or leave the file out (exclude)."
            )
        return group
    if settings.subject == "file":
        return name
    if settings.subject == "folder":
        parts = PurePosixPath(name).parts
        if len(parts) < 2:
            raise DataError(
                f"{name} lies in no folder below the one that is read, so subject: folder cannot name "
                "its subject. Move it into a folder of its subject, or use subject: file."
            )
        return parts[0]
    if identifier is not None and identifier.strip():
        return subject_of_identifier(identifier)
    return subject_of_path(name)


def validation_subjects(
    files: Mapping[str, Collection[str]],
    marks: Mapping[str, set[bool | None]],
    settings: ImageSettings,
    left_out: Sequence[str] = (),
) -> frozenset[str]:
    """Choose the subjects that validate.

    ``files`` has the files of each subject, ``marks`` what the files say on whether they validate. Named
    subjects come first, then the files' own word, then a seeded draw. ``left_out`` says what images were not
    used, for the case that one subject is left.
    """
    if len(files) < 2:
        raise DataError(
            "All images are of one subject, and training needs others to validate on (slices of one subject "
            "look alike, so they are never divided). Add subjects; or, if these are several and their files "
            "do not say so, tell them apart by subject: file, subject: folder or subject_pattern (arrays: an "
            "array 'subject' or 'validation' with an entry per image)."
            + (f" Of what was found, {'; '.join(left_out)}." if left_out else "")
        )
    if settings.validation_subjects:
        chosen = frozenset().union(*(_named(name, files) for name in settings.validation_subjects))
        if len(chosen) == len(files):
            raise DataError("validation_subjects names all subjects; none is left to train on.")
        return chosen
    if settings.own_validation and any(True in said for said in marks.values()):
        return _marked(marks)
    order = list(files)
    n = min(max(round(settings.validation_fraction * len(order)), 1), len(order) - 1)
    drawn = np.random.default_rng(settings.seed).permutation(len(order))[:n]
    return frozenset(order[i] for i in drawn)


def _marked(marks: Mapping[str, set[bool | None]]) -> frozenset[str]:
    for subject, said in marks.items():
        if True in said and len(said) > 1:
            raise DataError(
                f"The file's own 'validation' divides the subject {_shown(subject)}: some of its images "
                "train, others validate. Mark all images of a subject alike, correct 'subject' if these are "
                "several people, or set own_validation: false to draw anew."
            )
    chosen = frozenset(subject for subject, said in marks.items() if True in said)
    if len(chosen) == len(marks):
        raise DataError("The file's own 'validation' marks every image; none is left to train on.")
    return chosen


def _named(name: str, files: Mapping[str, Collection[str]]) -> set[str]:
    chosen = {subject for subject, own in files.items() if _is_called(name, subject, own)}
    if not chosen:
        known = sorted({_shown(subject) for subject in files if not _is_hashed(subject)})
        some = known or sorted(file for own in files.values() for file in own)
        raise DataError(
            f"validation_subjects names {name!r}, but no subject, file or folder with images has that name. "
            f"There are {len(files)} subjects; names are, for example, {', '.join(some[:5])}."
        )
    return chosen


def _is_called(name: str, subject: str, files: Collection[str]) -> bool:
    if subject in (name, name.lower()) or subject.rpartition("/")[2] in (name, name.lower()):
        return True
    return any(
        name in (file, PurePosixPath(file).name, _stem(file)) or file.startswith(name.rstrip("/") + "/")
        for file in files
    )


def _stem(file: str) -> str:
    return PurePosixPath(file).name.partition(".")[0]


def _is_hashed(subject: str) -> bool:
    """Tell whether a subject was named by an identifier of the file, so that it cannot be shown."""
    return subject.startswith(_HASHED)


def _shown(subject: str) -> str:
    return "with a hashed identifier" if _is_hashed(subject) else repr(subject)
