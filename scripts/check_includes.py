#!/usr/bin/python3
"""Checks that modules include only what their CMake link edges allow, and that those edges follow the order of the design.

The rows below are the order of doc/architecture.md: a module may use modules of earlier rows only, no sibling of its row.
Third-party headers may be included by the module that owns them only.
"""
import pathlib
import re
import sys

ROWS = [
    ["base"],
    ["schedule", "model", "device"],
    ["trace", "cost", "memory", "kernels", "comm"],
    ["simulate", "stage", "store", "optimizer", "data"],
    ["plan", "execute", "checkpoint"],
    ["config"],
    ["app"],
]
ROW_OF = {module: row for row, modules in enumerate(ROWS) for module in modules}
OWNERS = {
    r"mpi\.h": {"comm"},
    r"hdf5\.h|H5.*\.h": {"trace", "checkpoint", "data"},
    r"(oneapi/)?tbb/.*": {"kernels", "optimizer"},
    r"dnnl.*": {"kernels"},
    r"omp\.h": {"kernels"},
    r"yaml-cpp/.*": {"config"},
    r"CLI/.*": {"app"},
    r"nlohmann/.*": {"trace", "checkpoint", "data", "app"},
    r"xxhash\.h": {"checkpoint"},
    r"cuda.*|nccl\.h|cublas.*": set(),
}


def link_edges(folder):
    """Modules that src/<module>/CMakeLists.txt names under DEPENDS."""
    text = (folder / "CMakeLists.txt").read_text()
    match = re.search(r"DEPENDS([a-z_\s]*)(PRIVATE|\))", text)
    return set(match.group(1).split()) if match else set()


def reachable(module, edges):
    seen, todo = set(), [module]
    while todo:
        for next_module in edges.get(todo.pop(), ()):
            if next_module not in seen:
                seen.add(next_module)
                todo.append(next_module)
    return seen


def included(path):
    for number, line in enumerate(path.read_text().splitlines(), 1):
        match = re.match(r'\s*#\s*include\s*(["<])([^">]+)[">]', line)
        if match:
            yield number, match.group(1), match.group(2)


def check_file(path, module, allowed, faults):
    for number, kind, name in included(path):
        other = name.split("/")[0]
        if kind == '"' and other in ROW_OF and other != module and other not in allowed:
            faults.append(f"{path}:{number}: {module} includes {name}, but does not link {other} (directly or through another)")
        if kind == "<":
            for pattern, owners in OWNERS.items():
                if re.fullmatch(pattern, name) and module not in owners:
                    faults.append(f"{path}:{number}: <{name}> belongs to {', '.join(sorted(owners)) or 'a module to come'}, not to {module}")


def main():
    root = pathlib.Path(__file__).resolve().parent.parent
    folders = {f.parent.name: f.parent for f in sorted(root.glob("src/*/CMakeLists.txt"))}
    edges = {module: link_edges(folder) for module, folder in folders.items()}
    faults = []
    for module, others in edges.items():
        for other in sorted(others):
            if ROW_OF[other] >= ROW_OF[module]:
                faults.append(f"src/{module}/CMakeLists.txt: {module} (row {ROW_OF[module]}) links {other} (row {ROW_OF[other]})")
    for module, folder in folders.items():
        allowed = reachable(module, edges)
        for path in sorted(folder.rglob("*")):
            if path.suffix in (".hpp", ".cpp", ".inc", ".cu", ".cuh"):
                check_file(path.relative_to(root), module, allowed, faults)
    print("\n".join(faults) or f"{len(folders)} modules include only what they link, in order")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
