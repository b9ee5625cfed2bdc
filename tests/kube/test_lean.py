"""The client does without what is big in its library, in a fresh interpreter."""

import subprocess
import sys


def python(program: str) -> str:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_generated_classes_are_not_loaded() -> None:
    lines = python(
        "import kube.client, sys, resource\n"
        "print(len([name for name in sys.modules if name.startswith('kubernetes_asyncio.client.models.')]))\n"
        "from kubernetes_asyncio import client\n"
        "print(client.ApiClient.__module__, client.Configuration.__module__)\n"
        "try: client.V1Pod()\n"
        "except NotImplementedError as error: print(error)\n"
        "print(any(type(one).__module__ == 'kube.lean' for one in sys.meta_path))\n"
    ).splitlines()
    assert int(lines[0]) > 500, "their names are there, so that the library finds what it imports"
    assert lines[1:] == [
        "kubernetes_asyncio.client.api_client kubernetes_asyncio.client.configuration",
        "the generated classes of kubernetes_asyncio are not loaded; use kube.client",
        "False",
    ]


def test_that_is_most_of_the_librarys_memory() -> None:
    size = "int(open('/proc/self/statm').read().split()[1])"
    program = "import aiohttp; before = {size}; import {module}; print({size} - before)"
    lean, whole = (
        int(python(program.format(size=size, module=module))) for module in ("kube.client", "kubernetes_asyncio")
    )
    assert lean < whole / 2


def test_one_who_has_the_library_already_keeps_it_whole() -> None:
    program = "import kubernetes_asyncio.client, kube.client; print(kubernetes_asyncio.client.V1Pod(kind='Pod').kind)"
    assert python(program) == "Pod\n"
