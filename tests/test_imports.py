"""The import table of the README, held by reading the sources."""

import ast
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

ONE_FILE_EACH = {
    "ray": {"cluster/replicas.py"},
    "vllm": {"cluster/engine.py"},
    "typer": {"jobs/cli.py"},
    "datatrove": {"sequor/curation/pipeline.py"},
    "fasttext": {"sequor/curation/language.py"},
    "matplotlib": {"sequor/report/plot.py"},
    "openai": {"cluster/api.py"},
    "inspect_ai": {"sequor/report/inspect_log.py"},
}
LAYERS = {"cluster": {"cluster"}, "sequor": {"sequor", "cluster"}, "jobs": {"jobs", "sequor", "cluster"}}
SEQUOR_MAY_USE = {"cluster.conversation", "cluster.settings", "cluster.texts"}
"""Nouns, settings, texts; nothing that runs."""


def imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import"
            found.add(node.module)
            found |= {f"{node.module}.{alias.name}" for alias in node.names if node.module == "cluster"}
    return found - {"cluster"}


SOURCES = {
    str(path.relative_to(ROOT)): imports(path) for package in LAYERS for path in sorted((ROOT / package).rglob("*.py"))
}


def test_layers_import_downwards_only():
    for file, modules in SOURCES.items():
        own = file.split("/")[0]
        used = {module.split(".")[0] for module in modules} & LAYERS.keys()
        assert used <= LAYERS[own], f"{file} imports {used - LAYERS[own]}"


def test_sequor_knows_the_nouns_of_the_cluster_and_nothing_that_runs():
    for file, modules in SOURCES.items():
        if file.startswith("sequor/"):
            used = {module for module in modules if module.startswith("cluster")}
            assert used <= SEQUOR_MAY_USE, f"{file} imports {used - SEQUOR_MAY_USE}"


def test_each_heavy_library_stays_in_its_file():
    for library, files in ONE_FILE_EACH.items():
        users = {file for file, modules in SOURCES.items() if any(m.split(".")[0] == library for m in modules)}
        assert users == files


def test_vllm_is_imported_inside_functions_only():
    tree = ast.parse((ROOT / "cluster/engine.py").read_text())
    top = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    assert not any("vllm" in ast.unparse(node) for node in top)


def test_there_is_no_import_cycle():
    graph = {file.removesuffix(".py").replace("/", "."): modules for file, modules in SOURCES.items()}
    done: set[str] = set()

    def visit(module: str, trail: tuple[str, ...]) -> None:
        assert module not in trail, f"cycle: {' -> '.join((*trail, module))}"
        if module in done or module not in graph:
            return
        for imported in sorted(graph[module]):
            visit(imported, (*trail, module))
        done.add(module)

    for module in sorted(graph):
        visit(module, ())
