"""Clients that openapi-generator makes of docs/openapi.yaml for Go and TypeScript compile."""

import json

import pytest

from tests.clients.programs import built, generated, program

pytestmark = [pytest.mark.long, pytest.mark.timeout(1200)]
TYPESCRIPT = "typescript@5.9.3"
STRICT = {
    "compilerOptions": {
        "strict": True,
        "noEmit": True,
        "target": "es2022",
        "module": "es2022",
        "moduleResolution": "bundler",
        "lib": ["es2022", "dom"],
    },
    "include": ["**/*.ts"],
}


def test_the_client_for_go_compiles(tmp_path):
    go = program("go")
    folder = generated("go", tmp_path)
    built(go, "mod", "tidy", cwd=folder)
    built(go, "vet", ".", cwd=folder)
    built(go, "build", "./...", cwd=folder)
    record = (folder / "model_task_record.go").read_text(encoding="utf-8")
    assert "BytesDeleted int64" in record


def test_the_client_for_typescript_compiles(tmp_path):
    npx = program("npx")
    folder = generated("typescript-fetch", tmp_path)
    (folder / "tsconfig.json").write_text(json.dumps(STRICT), encoding="utf-8")
    built(npx, "--yes", "-p", TYPESCRIPT, "tsc", "-p", ".", cwd=folder)
    assert "bytesDeleted: number" in (folder / "models" / "TaskRecord.ts").read_text(encoding="utf-8")
