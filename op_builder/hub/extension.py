"""A kernel of the Hugging Face Hub as an implementation in a kernel loader."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import threading
from importlib.machinery import (
    BYTECODE_SUFFIXES,
    EXTENSION_SUFFIXES,
    SOURCE_SUFFIXES,
    ExtensionFileLoader,
    FileFinder,
    SourceFileLoader,
    SourcelessFileLoader,
)
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from ..engine.errors import OpLoadError
from ..kernel_extensions import KernelExtension, require_package
from .checking import require_unchanged

if TYPE_CHECKING:
    import types
    from collections.abc import Iterable, Iterator

__all__ = ["HubExtension"]

_importing = threading.Lock()


class HubExtension(KernelExtension):
    """A kernel in the local cache of Hugging Face's ``kernels``. It is not downloaded, and no changed file is loaded.

    A subclass names the kernel, and is registered with a loader. If the kernel cannot be loaded, the loader uses the next
    implementation and logs the reason.

    Attributes:
        name: the name to request it by.
        priority: by default above this project's implementations.
        repo_id: the kernel's repository, such as ``"kernels-community/activation"``.
        revision: a version (``"v1"``), another branch or tag, or a commit.
        metadata_sha256: the expected SHA-256 of the variant's ``metadata.json``, in hexadecimal, which has the digest of every
            other file; empty for any. Without it, files are only checked against the metadata that came with them.
        backend: ``"cpu"``, or None for the backend that torch was built for.

    Example:
        >>> class Activations(HubExtension):
        ...     repo_id, revision = "someone/activations", "v1"
        ...
        ...     def functions(self, module):
        ...         return SimpleNamespace(swiglu=module.silu_and_mul)  # the loader's names
        >>> ActivationsLoader.register_extension(Activations)
    """

    name: str = "hub"
    priority: int = 10
    support_aot: bool = False
    support_jit: bool = False
    load_checks: ClassVar[bool] = True
    repo_id: ClassVar[str] = ""
    revision: ClassVar[str] = "v1"
    metadata_sha256: ClassVar[str] = ""
    backend: ClassVar[str | None] = None

    def is_available(self) -> bool:
        """Return True: whether the kernel has a variant for this machine is known once it is found in the cache."""
        return True

    def assert_compatible(self) -> None:
        """Check that the cache has the kernel for this machine, and that no file was changed.

        Raises:
            OpLoadError: when the package, the kernel or its variant is missing, or it needs other kernels.
            DigestError: when a file was changed.
        """
        self.checked_variant()

    def load(self) -> Any:
        """Check the kernel, import it, and return its functions.

        Raises:
            OpLoadError: like :meth:`assert_compatible`, or when importing it fails.
            DigestError: when a file was changed.
        """
        variant = self.checked_variant()
        from kernels import get_local_kernel

        try:
            _keep_from_cached_bytecode([str(variant), os.path.realpath(variant)])
            with _without_cached_bytecode():
                module = get_local_kernel(variant, backend=self.backend)
                _keep_from_cached_bytecode(getattr(module, "__path__", ()))
        except Exception as error:  # the kernel's own code runs, and may raise anything
            msg = f"loading '{self.repo_id}' failed: {type(error).__name__}: {error}. Fix: use another revision, or report it."
            raise OpLoadError(msg) from error
        return self.functions(module)

    def functions(self, module: Any) -> Any:
        """Return an object with the functions of the loader; by default the module itself.

        Args:
            module: the kernel's module.
        """
        return module

    def checked_variant(self) -> Path:
        """Return the folder of the kernel's variant for this machine, after checking its files.

        Raises:
            OpLoadError: when it is not in the cache.
            DigestError: when a file was changed.
        """
        variant = self._find()
        repository, revision = self.repo_id, self.revision
        fix = (
            f"remove {_repository_of(variant)}, and download it again: "
            f"kernels.get_kernel({repository!r}, revision={revision!r}); if metadata_sha256 or the revision is wrong, correct it."
        )
        metadata = require_unchanged(variant, fix, self.metadata_sha256)
        if metadata.get("kernel-depends"):
            msg = (
                f"loading '{repository}' failed: it needs other kernels, which could be downloaded unchecked. "
                f"Fix: use a kernel without kernel-depends."
            )
            raise OpLoadError(msg)
        return variant

    def _find(self) -> Path:
        require_package(self.name, "kernels", "kernels")
        try:
            from huggingface_hub import snapshot_download
            from kernels.hf_hub import CACHE_DIR
            from kernels.variants import get_variants_local, resolve_variant, variants_trace_str
        except ImportError as error:
            msg = f"loading '{self.repo_id}' failed: {error}. Fix: pip install 'kernels>=0.17'"
            raise OpLoadError(msg) from error
        try:
            snapshot = snapshot_download(
                self.repo_id, repo_type="kernel", revision=self.revision, cache_dir=CACHE_DIR, local_files_only=True
            )
        except (OSError, ValueError) as error:  # not in the cache, or not a valid name
            first = str(error).strip().partition("\n")[0]
            msg = (
                f"loading '{self.repo_id}' failed: the cache has no revision {self.revision!r} of it: {first} "
                f"Fix: kernels.get_kernel({self.repo_id!r}, revision={self.revision!r}), once, with a network."
            )
            raise OpLoadError(msg) from error
        folder = Path(snapshot) / "build"
        try:
            variant, trace = resolve_variant(get_variants_local(folder), self.backend)
        except ValueError as error:
            msg = f"loading '{self.repo_id}' failed: {error}. Fix: set backend to 'cpu', or to None for what torch was built for."
            raise OpLoadError(msg) from error
        if variant is None:
            told = variants_trace_str(trace) if trace else "it has no variant"
            msg = f"loading '{self.repo_id}' failed: {told}. Fix: use a kernel that has a variant for this machine."
            raise OpLoadError(msg)
        found: str = variant.variant_str
        return folder / found


def _repository_of(variant: Path) -> Path:
    """Return the repository's folder in the cache: ``<repository>/snapshots/<commit>/build/<variant>``."""
    return variant.parents[3]


class _FromSource(SourceFileLoader):
    """Compiles a module's source whenever it is imported: bytecode next to it has no digest."""

    def get_code(self, fullname: str) -> types.CodeType:
        path = self.get_filename(fullname)
        return self.source_to_code(self.get_data(path), path)


def _keep_from_cached_bytecode(roots: Iterable[str]) -> None:
    """Let what a package's functions import later come from sources, too."""
    loaders = (ExtensionFileLoader, EXTENSION_SUFFIXES), (_FromSource, SOURCE_SUFFIXES)
    for root in roots:
        for folder, _, _ in os.walk(root):
            sys.path_importer_cache[folder] = FileFinder(folder, *loaders, (SourcelessFileLoader, BYTECODE_SUFFIXES))


@contextlib.contextmanager
def _without_cached_bytecode() -> Iterator[None]:
    """Import from sources only: bytecode next to them has no digest. Other threads' imports only become slower."""
    with _importing, tempfile.TemporaryDirectory() as elsewhere:
        before, sys.pycache_prefix = sys.pycache_prefix, elsewhere
        try:
            yield
        finally:
            sys.pycache_prefix = before
