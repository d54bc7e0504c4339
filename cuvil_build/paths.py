"""Where rules, targets, recipes and the example config are found: project first, then shipped."""

from __future__ import annotations

from pathlib import Path

KINDS = ("recipes", "rules", "targets")
EXAMPLE = "cuvil.yaml.example"


def shipped(name: str) -> Path:
    """A shipped folder or file: in the installed package's data, or at the top of a checkout."""
    package = Path(__file__).resolve().parent
    installed = package / "data" / name
    return installed if installed.exists() else package.parent / name


def search_path(kind: str, project: Path | None = None) -> tuple[Path, ...]:
    """Existing folders of one kind, in the order in which they win."""
    assert kind in KINDS, kind
    candidates = [] if project is None else [project / kind]
    candidates.append(shipped(kind))
    found: dict[Path, None] = {}
    for folder in candidates:
        if folder.is_dir():
            found.setdefault(folder.resolve())
    return tuple(found)


def find_yaml(kind: str, project: Path | None = None) -> dict[str, Path]:
    """Files of one kind by name (their stem), sorted; the project's win; bases (`_name`) are left out."""
    found: dict[str, Path] = {}
    for folder in search_path(kind, project):
        for file in sorted(folder.glob("*.yaml")):
            if not file.name.startswith("_"):
                found.setdefault(file.stem, file)
    return dict(sorted(found.items()))


def example_config() -> Path:
    return shipped(EXAMPLE)
