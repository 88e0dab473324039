"""The share of places that ``anyaccel migrate`` rewrites, among those that it rewrites or reports, in 65 packages from PyPI.

    python benchmarks/migrate_share.py [--packages FOLDER]

The versions are fixed. The files come from PyPI, about 150 MB, and stay in FOLDER for the next run; nothing in them runs.
Imports, docstrings and folders of tests do not count. A package is a program here if a user starts it: it brings a command or a
training loop of its own.
"""

from __future__ import annotations

import argparse
import io
import json
import tarfile
import urllib.request
import zipfile
from collections import Counter
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

from harness import show
from rich.progress import track

from anyaccel.migrate.discovery import discover
from anyaccel.migrate.files import migrate_files
from anyaccel.migrate.site import SiteOutcome

PROGRAMS = """
    agilerl==2.58.0 aitextgen==0.6.0 asteroid==0.7.0 bert-pytorch==0.0.1a4 catalyst==22.4 cellpose==4.2.1
    colbert-ai==0.2.22 dalle-pytorch==1.6.6 dalle2-pytorch==1.15.6 descript-audio-codec==1.0.0
    elegantrl==0.3.6 farm==0.8.0 fast-bert==2.0.26 fschat==0.2.36 funasr==1.4.16 joeynmt==2.3.0
    k-diffusion==0.1.1.post1 lightweight-gan==1.2.1 llamafactory==0.9.5 open-clip-torch==3.3.0
    openunmix==1.3.0 pfrl==0.4.0 pyabsa==2.4.3 pytext-nlp==0.3.3 pytorch-tabnet==4.1.0 recbole==1.2.1
    resemble-enhance==0.0.1 rl-games==1.6.5 rlcard==1.2.0 sample-factory==2.1.1 simpletransformers==0.70.8
    so-vits-svc-fork==4.2.30 stanza==1.15.0 super-gradients==3.7.1 textbrewer==0.2.1.post1 tianshou==2.0.1
    torch-points3d==1.3.0 tortoise-tts==3.0.0 whisperx==3.8.6
"""
LIBRARIES = """
    avalanche-lib==0.6.0 bindsnet==0.3.4 brevitas==0.13.4 d3rlpy==2.8.1 deeppavlov==1.7.0 fastNLP==1.0.1
    flair==0.15.1 gpytorch==1.15.2 insightface==2.1 kornia==0.9.0 libauc==2.0.1 lightning-bolts==0.7.0
    mmdet==3.3.0 mmsegmentation==1.2.2 opendelta==0.3.2 peft==0.21.2 pyannote.audio==4.0.7 pyiqa==0.1.16
    pyro-ppl==1.9.2 pytorch-ignite==0.5.5 pytorch-metric-learning==2.9.0 pytorch-toolbelt==0.8.0 skorch==1.4.0
    spikingjelly==2.0.0 timm==1.0.31 torchkge==0.17.7
"""
_INDEX = "https://pypi.org/"


def fetched(name: str, version: str, packages: Path) -> Path:
    """Return the folder of a package's files, unpacked from a wheel for every platform, else from the source."""
    folder = packages / f"{name}-{version}"
    if not folder.exists():
        files = json.loads(_read(f"{_INDEX}pypi/{name}/json"))["releases"][version]
        file = min(
            files, key=lambda each: (not each["filename"].endswith("none-any.whl"), each["packagetype"] != "sdist")
        )
        content = io.BytesIO(_read(urljoin(f"{_INDEX}simple/{name}/", file["url"])))
        unpacked = packages / f".{folder.name}"
        if file["filename"].endswith((".whl", ".zip")):
            with zipfile.ZipFile(content) as archive:
                archive.extractall(unpacked)  # noqa: S202, which leaves out what is outside of the folder
        else:
            with tarfile.open(fileobj=content) as source:
                source.extractall(unpacked, filter="data")
        unpacked.rename(folder)  # whole, or not at all
    return folder


def _read(address: str) -> bytes:
    with urllib.request.urlopen(address, timeout=120) as answer:  # noqa: S310, PyPI's addresses
        content: bytes = answer.read()
    return content


def outcomes(folder: Path) -> Counter[SiteOutcome]:
    """Return how many places of a package have each outcome."""
    results = migrate_files(discover([folder]), "anyaccel")
    own = [each for each in results if not {"test", "tests"} & set(each.path.relative_to(folder).parts)]
    sites = [site for each in own for site in each.sites if site.rule not in ("imports", "message")]
    return Counter(site.outcome for site in sites if not site.code.lstrip("rRuU").startswith(('"""', "'''")))


def row(title: str, counts: Counter[Any]) -> list[str]:
    rewritten, reported = counts[SiteOutcome.REWRITTEN], counts[SiteOutcome.REPORTED]
    share = f"{rewritten / (rewritten + reported):.1%}" if rewritten + reported else ""
    return [title, str(rewritten), str(reported), str(counts[SiteOutcome.LEFT]), share]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--packages", type=Path, default=Path.home() / ".cache" / "anyaccel-share")
    packages = parser.parse_args().packages
    sums, rows = [], []
    for kind, specifiers in (("programs", PROGRAMS.split()), ("libraries", LIBRARIES.split())):
        total: Counter[SiteOutcome] = Counter()
        for specifier in track(specifiers, kind):
            name, version = specifier.split("==")
            counts = outcomes(fetched(name, version, packages))
            total += counts
            rows.append(row(specifier, counts))
        sums.append(row(f"{len(specifiers)} {kind}", total))
    show("migrate-share", "anyaccel migrate", ["code", "rewritten", "reported", "left", "share"], [*sums, *rows])


if __name__ == "__main__":
    main()
