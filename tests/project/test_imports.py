"""Imports of source files, resolved to files of the project; module, role and language."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from kb.errors import FileNotFound, ImportsFailed, PermissionDenied
from kb.project.tree import Dependency, imports, language_of, module_of, role_of


def tree(root: Path, files: dict[str, str]) -> Path:
    for path, text in files.items():
        location = root / path
        location.parent.mkdir(parents=True, exist_ok=True)
        location.write_text(text)
    return root


def imported(root: Path, path: str) -> list[str]:
    return [dependency.path for dependency in imports(root, path)]


def empty(*paths: str) -> dict[str, str]:
    return dict.fromkeys(paths, "")


def test_a_dependency_says_what_it_is(tmp_path: Path) -> None:
    root = tree(tmp_path, {"a.py": "import b", "b.py": ""})
    assert imports(root, "a.py") == [Dependency(path="b.py", type="import", level=1)]


# Python


def test_python_modules_packages_and_submodules_are_found(tmp_path: Path) -> None:
    root = tree(
        tmp_path,
        {
            "app/main.py": """
import os, app.models
import app.services.mail as mail
from app import database, VERSION
from app.services import (
    search,  # a comment
    Index as I,
)
from app.tools import *
import requests
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    from app.late import Late
def f():
    from app import inside
""",
            **empty("app/__init__.py", "app/models.py", "app/services/__init__.py"),
            **empty("app/services/mail.py", "app/database.py", "app/services/search.py"),
            **empty("app/tools/__init__.py", "app/late.py", "app/inside.py", "os.txt"),
        },
    )
    assert imported(root, "app/main.py") == [
        "app/models.py",
        "app/services/mail.py",
        "app/database.py",
        "app/__init__.py",
        "app/services/search.py",
        "app/services/__init__.py",
        "app/tools/__init__.py",
        "app/late.py",
        "app/inside.py",
    ]


def test_python_relative_imports_count_their_dots(tmp_path: Path) -> None:
    root = tree(
        tmp_path,
        {
            "p/a/x.py": "from . import y\nfrom .y import f\nfrom .. import b, NAME\n"
            "from ..b.c import g\nfrom ... import outside\nfrom .... import beyond\n"
            "from .x import me\n",
            **empty("p/__init__.py", "p/a/__init__.py", "p/a/y.py", "p/b/__init__.py", "p/b/c.py"),
            **empty("outside.py"),
        },
    )
    assert imported(root, "p/a/x.py") == [
        "p/a/y.py",
        "p/b/__init__.py",
        "p/__init__.py",
        "p/b/c.py",
        "outside.py",
    ]


def test_python_is_imported_from_src_and_from_configured_folders(tmp_path: Path) -> None:
    root = tree(
        tmp_path,
        {
            "tests/test_it.py": "import tool\nfrom helper import x\nimport member",
            "src/tool/__init__.py": "",
            "extra/helper.py": "",
            "packages/one/src/member/__init__.py": "",
            "pyproject.toml": '[tool.pytest.ini_options]\npythonpath = ["extra"]\n'
            '[tool.uv.workspace]\nmembers = ["packages/*"]\n',
        },
    )
    assert imported(root, "tests/test_it.py") == [
        "src/tool/__init__.py",
        "extra/helper.py",
        "packages/one/src/member/__init__.py",
    ]


def test_a_module_named_like_one_of_the_standard_library_is_not_taken_for_it(
    tmp_path: Path,
) -> None:
    root = tree(
        tmp_path, {"p/__init__.py": "", "p/types.py": "", "p/x.py": "import types\nimport p.types"}
    )
    assert imported(root, "p/x.py") == ["p/types.py"]
    root = tree(tmp_path, {"scripts/run.py": "import types", "types.py": ""})
    assert imported(root, "scripts/run.py") == []


# JavaScript and TypeScript


def test_typescript_specifiers_lead_to_sources(tmp_path: Path) -> None:
    root = tree(
        tmp_path,
        {
            "src/main.ts": """
import a, { type B } from "./a.js";
import type { C } from './types';
import "./side-effect";
export * from "./folder";
export { d } from "../shared/d";
const e = require("./e");
const f = await import(`./f`);
import g = require("./g");
import data from "./data.json";
import style from "./app.css?inline";
import logo from "./logo.png";
type H = import("./h").H;
import react from "react";
import self from "./main";
const computed = import("./" + name);
const other = require.resolve("./e");
""",
            **empty("src/a.ts", "src/a.js", "src/types.d.ts", "src/side-effect.tsx"),
            **empty("src/folder/index.ts", "shared/d.mts", "src/e.js", "src/f/index.js"),
            **empty("src/g.ts", "src/data.json", "src/app.css", "src/logo.png", "src/h.ts"),
            **empty("node_modules/react/index.js"),
        },
    )
    assert imported(root, "src/main.ts") == [
        "src/a.ts",
        "src/types.d.ts",
        "src/side-effect.tsx",
        "src/folder/index.ts",
        "shared/d.mts",
        "src/e.js",
        "src/f/index.js",
        "src/g.ts",
        "src/data.json",
        "src/app.css",
        "src/h.ts",
    ]


def test_javascript_prefers_javascript_and_the_exact_name(tmp_path: Path) -> None:
    root = tree(
        tmp_path,
        {
            "a.jsx": "import b from './b'; import c from './c.js'; import { d } from '.';"
            "const view = () => <b.View>{c}</b.View>;",
            **empty("b.js", "b.ts", "c.js", "c.ts", "index.js"),
        },
    )
    assert imported(root, "a.jsx") == ["b.js", "c.js", "index.js"]


def test_paths_of_a_tsconfig_are_followed_through_comments_and_extends(tmp_path: Path) -> None:
    root = tree(
        tmp_path,
        {
            "tsconfig.base.json": """{
  // comments, and a comma too many
  "compilerOptions": {
    "baseUrl": ".", /* here */
    "paths": {
      "@app/*": ["apps/web/src/*", "generated/*"],
      "@app/special/*": ["special/*"],
      "config": ["settings/config.ts"],
      "http://x/*": ["never/*"],
    },
  },
}""",
            "apps/web/tsconfig.json": '{"extends": "../../tsconfig.base"}',
            "apps/web/src/main.tsx": """
import a from "@app/a";
import g from "@app/made";
import s from "@app/special/s";
import c from "config";
import b from "libs/b";
import n from "@app/nothing";
""",
            **empty("apps/web/src/a.ts", "generated/made.ts", "special/s.ts"),
            **empty("apps/web/src/special/s.ts", "settings/config.ts", "libs/b/index.ts"),
        },
    )
    assert imported(root, "apps/web/src/main.tsx") == [
        "apps/web/src/a.ts",
        "generated/made.ts",
        "special/s.ts",
        "settings/config.ts",
        "libs/b/index.ts",
    ]


def test_a_tsconfig_that_only_refers_to_others_is_seen_through(tmp_path: Path) -> None:
    root = tree(
        tmp_path,
        {
            "tsconfig.json": '{"files": [], "references": [{"path": "./tsconfig.app.json"}]}',
            "tsconfig.app.json": '{"compilerOptions": {"paths": {"~/*": ["./src/*"]}}}',
            "src/x.ts": 'import y from "~/y"',
            "src/y.ts": "",
        },
    )
    assert imported(root, "src/x.ts") == ["src/y.ts"]


def test_configurations_that_extend_one_another_in_a_circle_end(tmp_path: Path) -> None:
    root = tree(
        tmp_path,
        {
            "tsconfig.json": '{"extends": "./other.json"}',
            "other.json": '{"extends": "./tsconfig.json", "compilerOptions": {"baseUrl": "src"}}',
            "x.ts": 'import y from "y"',
            "src/y.ts": "",
        },
    )
    assert imported(root, "x.ts") == ["src/y.ts"]


@pytest.mark.parametrize(
    "workspace",
    [
        {"package.json": '{"workspaces": ["packages/*"]}'},
        {"package.json": '{"workspaces": {"packages": ["packages/**"]}}'},
        {"package.json": "{}", "pnpm-workspace.yaml": "packages:\n  - 'packages/*'\n"},
    ],
)
def test_packages_of_the_workspace_are_found_by_name(
    tmp_path: Path, workspace: dict[str, str]
) -> None:
    root = tree(
        tmp_path,
        {
            **workspace,
            "packages/core/package.json": '{"name": "@acme/core", "main": "dist/index.js",'
            ' "exports": {".": {"import": "./dist/index.js"}, "./log": "./dist/log.js"}}',
            "packages/core/src/index.ts": 'import "@acme/core/log"',
            "packages/core/src/log.ts": "",
            "packages/plain/package.json": '{"name": "plain", "imports": {"#db": "./db.js"}}',
            "packages/plain/index.js": "require('#db')",
            "packages/plain/db.js": "",
            "packages/plain/deep/part.js": "",
            "packages/web/main.ts": 'import "@acme/core"; import "@acme/core/log";'
            'import "plain"; import "plain/deep/part.js"; import "@acme/unknown"',
        },
    )
    assert imported(root, "packages/web/main.ts") == [
        "packages/core/src/index.ts",
        "packages/core/src/log.ts",
        "packages/plain/index.js",
        "packages/plain/deep/part.js",
    ]
    assert imported(root, "packages/core/src/index.ts") == ["packages/core/src/log.ts"]
    assert imported(root, "packages/plain/index.js") == ["packages/plain/db.js"]


def test_packages_that_name_each_other_as_their_main_file_end(tmp_path: Path) -> None:
    root = tree(
        tmp_path,
        {
            "x.js": "require('./a'); require('./c')",
            "a/package.json": '{"main": "../b"}',
            "b/package.json": '{"main": "../a"}',
            "c/package.json": '{"main": "./code"}',
            "c/code/index.js": "",
        },
    )
    assert imported(root, "x.js") == ["c/code/index.js"]


# Go, Rust, Java, C, Ruby


def test_go_packages_are_their_files_without_tests(tmp_path: Path) -> None:
    root = tree(
        tmp_path,
        {
            "go.mod": "module example.com/app\n\nreplace example.com/lib => ./third/lib\n",
            "main.go": """package main
import "fmt"
import (
	log "example.com/app/internal/log"
	_ "example.com/lib/x"
	"example.com/apple"
	. "example.com/app/nothing"
)
""",
            **empty("internal/log/b.go", "internal/log/a.go", "internal/log/a_test.go"),
            **empty("third/lib/x/x.go", "internal/log/notes.txt"),
        },
    )
    assert imported(root, "main.go") == [
        "internal/log/a.go",
        "internal/log/b.go",
        "third/lib/x/x.go",
    ]


def test_a_go_workspace_joins_its_modules(tmp_path: Path) -> None:
    root = tree(
        tmp_path,
        {
            "go.work": "go 1.22\nuse (\n\t./one\n\t./two\n)\n",
            "one/go.mod": "module example.com/one\n",
            "two/go.mod": "module example.com/two\n",
            "one/main.go": 'package main\nimport "example.com/two"\n',
            "two/two.go": "package two\n",
        },
    )
    assert imported(root, "one/main.go") == ["two/two.go"]


def test_rust_modules_and_paths_lead_to_files(tmp_path: Path) -> None:
    root = tree(
        tmp_path,
        {
            "Cargo.toml": '[package]\nname = "my-tool"\n[workspace]\nmembers = ["crates/*"]\n',
            "src/lib.rs": "pub mod parse;\nmod store;\nmod inline { mod deep; }\n"
            '#[path = "odd/place.rs"]\nmod place;\nuse parse::Parser;\nuse std::fmt;',
            "src/parse.rs": "mod lexer;\nuse crate::store::{disk::{self, Disk}, Memory};\n"
            "use self::lexer::Token as T;\nuse super::Root;\nuse helper_lib::go;\n"
            "#[cfg(test)]\nmod tests { use super::*; use super::lexer::*; }",
            **empty("src/parse/lexer.rs", "src/store/mod.rs", "src/store/disk.rs"),
            **empty("src/inline/deep.rs", "src/odd/place.rs"),
            "crates/helper/Cargo.toml": '[package]\nname = "helper-lib"\n',
            "crates/helper/src/lib.rs": "",
            "tests/works.rs": "mod common;\nuse my_tool::parse::Parser;\nuse common::setup;",
            "tests/common/mod.rs": "",
        },
    )
    assert imported(root, "src/lib.rs") == [
        "src/parse.rs",
        "src/store/mod.rs",
        "src/inline/deep.rs",
        "src/odd/place.rs",
    ]
    assert imported(root, "src/parse.rs") == [
        "src/parse/lexer.rs",
        "src/store/disk.rs",
        "src/store/mod.rs",
        "src/lib.rs",
        "crates/helper/src/lib.rs",
    ]
    assert imported(root, "tests/works.rs") == ["tests/common/mod.rs", "src/parse.rs"]


def test_java_classes_are_found_in_every_source_root(tmp_path: Path) -> None:
    root = tree(
        tmp_path,
        {
            "web/src/test/java/com/acme/web/PageTest.java": """package com.acme.web;
import java.util.List;
import com.acme.web.Page;
import com.acme.core.Store.Entry;
import static com.acme.core.Limits.MAXIMUM;
import com.acme.model.*;
class PageTest {}
""",
            **empty("web/src/main/java/com/acme/web/Page.java"),
            **empty("core/src/main/java/com/acme/core/Store.java"),
            **empty("core/src/main/java/com/acme/core/Limits.java"),
            **empty("core/src/main/java/com/acme/model/B.java"),
            **empty("core/src/main/java/com/acme/model/A.java"),
        },
    )
    assert imported(root, "web/src/test/java/com/acme/web/PageTest.java") == [
        "web/src/main/java/com/acme/web/Page.java",
        "core/src/main/java/com/acme/core/Store.java",
        "core/src/main/java/com/acme/core/Limits.java",
        "core/src/main/java/com/acme/model/A.java",
        "core/src/main/java/com/acme/model/B.java",
    ]


@pytest.mark.parametrize("name", ["src/main.c", "src/main.cc"])
def test_c_includes_are_found_beside_the_file_and_among_headers(tmp_path: Path, name: str) -> None:
    root = tree(
        tmp_path,
        {
            name: '#include <stdio.h>\n#include "near.h"\n#include <tool/api.h>\n#ifdef X\n'
            '#include "../other/o.h"\n#endif\n#include "part/p.h"\n#include "/etc/passwd"\n'
            "#include MACRO\n#include <near.h>\nint main( { broken",
            **empty("src/near.h", "include/tool/api.h", "other/o.h", "libs/part/include/part/p.h"),
        },
    )
    assert imported(root, name) == [
        "src/near.h",
        "include/tool/api.h",
        "other/o.h",
        "libs/part/include/part/p.h",
    ]


def test_ruby_files_are_found_by_place_and_on_the_load_path(tmp_path: Path) -> None:
    root = tree(
        tmp_path,
        {
            "spec/tool_spec.rb": "require 'json'\nrequire \"spec_helper\"\nrequire 'tool'\n"
            "require_relative '../lib/tool/parser'\nautoload :X, 'tool/x'\n"
            'require "tool/#{name}"\nobject.require "tool/no"\nload "tasks.rb"\n',
            **empty("spec/spec_helper.rb", "lib/tool.rb", "lib/tool/parser.rb", "lib/tool/x.rb"),
            **empty("lib/tool/no.rb", "tasks.rb"),
        },
    )
    assert imported(root, "spec/tool_spec.rb") == [
        "spec/spec_helper.rb",
        "lib/tool.rb",
        "lib/tool/parser.rb",
        "lib/tool/x.rb",
        "tasks.rb",
    ]


@pytest.mark.parametrize(
    ("files", "path", "found"),
    [
        (
            {
                "packages/a/package.json": '{"name": "@x/a"}',
                "packages/a/src/index.ts": "import { b } from '@x/b';\nimport c from 'c';\n",
                "packages/b/package.json": '{"name": "@x/b"}',
                "packages/b/src/index.ts": "",
                "apps/c/package.json": '{"name": "c", "main": "main.js"}',
                "apps/c/main.js": "",
            },
            "packages/a/src/index.ts",
            ["packages/b/src/index.ts", "apps/c/main.js"],
        ),
        (
            {
                "a/go.mod": "module example.org/a\n",
                "a/main.go": 'package main\n\nimport "example.org/b/inner"\n',
                "b/go.mod": "module example.org/b\n",
                "b/inner/inner.go": "package inner\n",
            },
            "a/main.go",
            ["b/inner/inner.go"],
        ),
        (
            {
                "libs/a/pyproject.toml": "",
                "libs/a/src/a/main.py": "from b import core\nimport c\n",
                "libs/b/pyproject.toml": "",
                "libs/b/src/b/core.py": "",
                "libs/b/src/b/__init__.py": "",
                "services/c/pyproject.toml": "",
                "services/c/c/__init__.py": "",
            },
            "libs/a/src/a/main.py",
            ["libs/b/src/b/core.py", "services/c/c/__init__.py"],
        ),
    ],
)
def test_packages_beside_are_found_without_a_workspace(
    tmp_path: Path, files: dict[str, str], path: str, found: list[str]
) -> None:
    assert imported(tree(tmp_path, files), path) == found


# What may go wrong


@pytest.mark.parametrize(
    ("name", "text", "line"),
    [
        ("a.py", "import b\nfrom b import (\n", 2),
        ("a.py", "!!! ???\nimport b\n", 1),
        ("a.ts", "import {\n", 1),
        ("a.ts", "import { b from './b';\nimport c from './c';\n", 1),
        ("a.go", 'package a\n\nimport (\n\t"b"\n', 3),
        ("a.rs", "mod b;\nuse crate::{b\nfn f() {}\n", 2),
        ("A.java", "package a;\nimport a.B\nclass A {}\n", 2),
        ("a.c", '#include "b.h"\n#include "c.h\nint x;\n', 2),
        ("a.h", "#include <b.h\n", 1),
        ("a.cpp", "#include\n", 1),
        ("a.cpp", "#include b.h\n", 1),
        ("a.rb", "require_relative 'b\n", 1),
        ("a.rb", "require_relative (\n", 1),
    ],
)
def test_an_error_among_the_imports_is_reported_with_its_line(
    tmp_path: Path, name: str, text: str, line: int
) -> None:
    root = tree(tmp_path, {name: text})
    with pytest.raises(ImportsFailed) as caught:
        imports(root, name)
    assert caught.value.message == "Failed to parse imports"
    assert caught.value.details == {"path": name, "details": f"Syntax error at line {line}"}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.py", "import b\nclass A:\n  def f(self):\n    return )\n\ndef g(:\n"),
        ("a.ts", "import './b';\nfunction f() { return ( }\nexport class X { foo( }\n"),
        ("a.js", "require('./b');\ndescribe('x', () => { it( })\n"),
        ("a.rb", "require_relative 'b'\ndef f(\n end end\n"),
        ("a.c", '#include "b.h"\nMACRO(x) y {\nint a;\n'),
        ("a.c", 'EXTERN_C BEGIN FOO(x) {\n#include "b.h"\n'),
        ("a.c", 'int a[] = {\n#include "b.h"\n};\n#include MACRO\n#include NAME(x)\n'),
        ("a.cpp", '#include "b.h"\nFOO class X : { ;;\n'),
    ],
)
def test_an_error_below_the_imports_does_no_harm(tmp_path: Path, name: str, text: str) -> None:
    root = tree(tmp_path, {name: text, **empty("b.py", "b.ts", "b.js", "b.rb", "b.h")})
    assert len(imported(root, name)) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.py", "(" * 1_000_000),
        ("a.js", "f(" * 300_000 + ")" * 300_000),
        ("a.rs", "use a::{b::" * 90_000),
        ("a.ts", "`${" * 300_000),
    ],
)
def test_a_source_made_to_be_hard_is_given_up(tmp_path: Path, name: str, text: str) -> None:
    # Given up, or found to hold nothing: both are right, and which depends on the machine.
    with contextlib.suppress(ImportsFailed):
        assert imported(tree(tmp_path, {name: text}), name) == []


def test_binary_and_unknown_files(tmp_path: Path) -> None:
    root = tree(tmp_path, {"notes.md": "import x"})
    (root / "x.py").write_bytes(b"\0\1\2" * 100)
    assert imports(root, "notes.md") == []
    with pytest.raises(ImportsFailed):
        imports(root, "x.py")
    with pytest.raises(FileNotFound):
        imports(root, "gone.py")


def test_utf_16_sources_are_read(tmp_path: Path) -> None:
    root = tree(tmp_path, {"b.py": ""})
    (root / "a.py").write_bytes("import b\n".encode("utf-16"))
    assert imported(root, "a.py") == ["b.py"]


def test_imports_never_lead_out_of_the_project_or_to_hidden_files(tmp_path: Path) -> None:
    project = tree(
        tmp_path / "project",
        {
            "a.js": 'import "../outside"; import "./link"; import "./.env"; import "./key.pem";'
            'import "node_modules/x"; import "./node_modules/x"; import "/a"; import "./inner"',
            "tsconfig.json": '{"extends": "../tsconfig", "compilerOptions": {"baseUrl": ".."}}',
            "package.json": '{"workspaces": ["../*"]}',
            **empty(".env", "key.pem", "node_modules/x.js", "real.js"),
        },
    )
    tree(tmp_path, {"outside.js": "", "node_modules/x.js": ""})
    (project / "link.js").symlink_to(tmp_path / "outside.js")
    (project / "inner.js").symlink_to("real.js")
    assert imported(project, "a.js") == ["real.js"]
    with pytest.raises(PermissionDenied):
        imports(project, "link.js")


# What a path tells


@pytest.mark.parametrize(
    ("path", "module"),
    [
        ("src/server/auth/AuthService.ts", "auth"),
        ("src/index.ts", "root"),
        ("README.md", "root"),
        ("packages/core/src/index.ts", "core"),
        ("src/main/java/com/acme/billing/Invoice.java", "billing"),
        ("src/auth/__tests__/login.test.ts", "auth"),
        ("tests/test_main.py", "tests"),
        ("fastapi/security/oauth2.py", "security"),
        ("./kb/errors.py", "kb"),
    ],
)
def test_the_module_is_the_nearest_telling_folder(path: str, module: str) -> None:
    assert module_of(path) == module


@pytest.mark.parametrize(
    ("path", "role"),
    [
        ("src/server/auth/AuthService.ts", "core"),
        ("src/auth/AuthService.test.ts", "test"),
        ("tests/test_main.py", "test"),
        ("pkg/store/store_test.go", "test"),
        ("src/test/java/a/PageTest.java", "test"),
        ("pyproject.toml", "config"),
        ("vite.config.ts", "config"),
        (".github/workflows/test.yml", "config"),
        ("package.json", "config"),
        ("docs/guide.md", "documentation"),
        ("LICENSE", "documentation"),
        ("src/types.ts", "types"),
        ("src/global.d.ts", "types"),
        ("app/models.pyi", "types"),
        ("src/main.rs", "entry"),
        ("src/index.ts", "entry"),
        ("app/__main__.py", "entry"),
        ("app/migrations/0001_initial.py", "migration"),
        ("scripts/build.py", "script"),
        ("assets/site.css", "style"),
        ("data/cities.csv", "data"),
        ("fastapi/routing.py", "core"),
        ("src/latest/contest.ts", "core"),
    ],
)
def test_the_role_follows_from_the_path(path: str, role: str) -> None:
    assert role_of(path) == role


@pytest.mark.parametrize(
    ("path", "language"),
    [
        ("src/server/auth/AuthService.ts", "typescript"),
        ("App.TSX", "typescript"),
        ("a/b.py", "python"),
        ("Makefile", "makefile"),
        ("Dockerfile.dev", "dockerfile"),
        ("include/x.hpp", "cpp"),
        ("photo.png", ""),
        ("noending", ""),
    ],
)
def test_the_language_follows_from_the_name(path: str, language: str) -> None:
    assert language_of(path) == language
