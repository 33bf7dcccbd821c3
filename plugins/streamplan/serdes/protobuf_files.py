"""Files of Protobuf as descriptors, compiled by Google's ``protoc``, which the package grpcio-tools has.

A declaration and a registry have texts, or descriptors: the bytes of ``google.protobuf.FileDescriptorProto``. The
compiler runs as a process of its own, as its package documents, once for each schema and process of Python.
"""

from __future__ import annotations

import re
import subprocess
import sys
from base64 import b64decode, b64encode
from binascii import Error
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from streamplan.errors import Refused
from streamplan.serdes.schema_source import Reference, WrittenSchema

SCHEMA_FORMAT = "PROTOBUF"

_BUILT_IN = ("google/protobuf/", "google/type/", "confluent/")
"""Files that every registry has. They are no references (``ProtobufSchema`` of Confluent's registry)."""

_FILE = "schema.proto"
_COMPILER_SECONDS = 60
_OF_A_FILE = 1
"""The exit status of the compiler where a file is wrong."""

_REMARK = re.compile(r"warning:|^WARNING:|^[IW]\d{4} ")
"""What the compiler says beside its errors: warnings, and lines of its own log."""


class NotCompiled(ValueError):
    """A text that is no file of Protobuf. ``str()`` is what the compiler says."""


def require_compiler() -> None:
    """Make sure that files can be compiled.

    Raises:
        Refused: There is no compiler.
    """
    if find_spec("grpc_tools") is None:
        raise Refused(
            "a schema of Protobuf",
            expected="the compiler of the package grpcio-tools",
            observed="it is not installed",
            remedy="Run `pip install 'streamplan[protobuf]'`.",
        )


def compile_file(name: str, folders: Sequence[Path], described: bytes = b"") -> bytes:
    """Compile a file with all that it imports.

    Args:
        name: Its path in one of the folders.
        folders: Where its path and those of imports begin.
        described: The ``FileDescriptorSet`` of files that are in no folder; the file itself may be one of them.

    Returns:
        A ``FileDescriptorSet``, in which each file stands after those that it imports.

    Raises:
        NotCompiled: The compiler refuses it.
        Refused: There is no compiler, or it does not run.
    """
    require_compiler()
    status, told, result = _run_compiler(name, folders, described)
    if status and '"confluent/' in told:  # no text of these files is here, and importing their descriptors takes long
        status, told, result = _run_compiler(name, folders, described + _confluent_files())
    if (
        status not in (0, _OF_A_FILE) or "Traceback (most recent call last)" in told
    ):  # it did not run, whatever the file is
        raise Refused(
            "a schema of Protobuf",
            expected="the compiler of the package grpcio-tools to run",
            observed=f"exit status {status}, {' '.join(told.split())[-300:]}",
            remedy="Install it again: `pip install --force-reinstall grpcio-tools`.",
        )
    if status:
        for folder in folders:
            told = told.replace(f"{folder}/", "")
        lines = [line for line in told.splitlines() if not _REMARK.search(line)]
        raise NotCompiled("; ".join(lines) or "protoc failed")
    return result


def compile_schema(written: WrittenSchema) -> bytes:
    """Compile the schema of a registry: a text, or the descriptor of a file in base64, as Python's client writes it.

    Raises:
        NotCompiled: It is neither, or one that it names is neither.
        Refused: There is no compiler.
    """
    from google.protobuf.descriptor_pb2 import FileDescriptorSet

    described = FileDescriptorSet()
    with TemporaryDirectory(prefix="streamplan-") as folder:
        for name, text in {**written.flattened(), _FILE: written.text}.items():
            if (found := _described(name, text)) is not None:
                described.file.append(found)
                continue
            path = Path(folder, name)
            if "\0" in name or not path.resolve().is_relative_to(Path(folder).resolve()):
                raise NotCompiled(f"{name} is not the name of an imported file")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        return compile_file(_FILE, [Path(folder)], described.SerializeToString())


def declared_schema(files: bytes, name: str) -> WrittenSchema:
    """Return a file of a ``FileDescriptorSet`` as it is registered, with the files that it imports as references."""
    from google.protobuf.descriptor_pb2 import FileDescriptorSet

    by_name = {each.name: each for each in FileDescriptorSet.FromString(files).file}

    def schema(name: str) -> WrittenSchema:
        file = by_name[name]
        references = (
            Reference(imported, schema(imported)) for imported in file.dependency if not imported.startswith(_BUILT_IN)
        )
        text = b64encode(file.SerializeToString(deterministic=True)).decode()
        return WrittenSchema(text, tuple(references), SCHEMA_FORMAT)

    return schema(name)


def _described(name: str, text: str) -> Any:
    """The descriptor that a text in base64 is; None where it is another text."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto
    from google.protobuf.message import DecodeError

    try:
        found = FileDescriptorProto.FromString(b64decode(text.strip(), validate=True))
    except (DecodeError, Error, ValueError):
        return None
    found.name = name
    return found


def _run_compiler(name: str, folders: Sequence[Path], described: bytes) -> tuple[int, str, bytes]:
    """Run the compiler. Return its exit status, what it says, and the descriptors that it makes."""
    with TemporaryDirectory(prefix="streamplan-") as own:
        given, result = Path(own, "given"), Path(own, "result")
        arguments = [f"--proto_path={path}" for path in (*folders, *_common_folders())]
        arguments += ["--include_imports", f"--descriptor_set_out={result}"]
        if described:
            given.write_bytes(described)
            arguments.append(f"--descriptor_set_in={given}")
        done = subprocess.run(
            # -P: no module of the working directory is imported.
            [sys.executable, "-P", "-m", "grpc_tools.protoc", *arguments, name],
            capture_output=True,
            text=True,
            timeout=_COMPILER_SECONDS,
            check=False,
        )
        return done.returncode, done.stderr, b"" if done.returncode else result.read_bytes()


def _confluent_files() -> bytes:
    """The descriptors of Confluent's files; descriptors in a row are one set of them."""
    from confluent_kafka.schema_registry.confluent import meta_pb2
    from confluent_kafka.schema_registry.confluent.type import decimal_pb2
    from google.protobuf import descriptor_pb2

    files = descriptor_pb2.FileDescriptorSet()
    for module in (descriptor_pb2, meta_pb2, decimal_pb2):
        files.file.add().ParseFromString(module.DESCRIPTOR.serialized_pb)
    data: bytes = files.SerializeToString()
    return data


def _common_folders() -> list[Path]:
    """Where the files ``google/type/*.proto`` are, if the package googleapis-common-protos is installed."""
    try:
        found = find_spec("google.type")
    except ModuleNotFoundError:
        return []
    return [Path(each).parent.parent for each in (found.submodule_search_locations or ())] if found else []
