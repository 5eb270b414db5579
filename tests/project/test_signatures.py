"""What a file shows of another one: signatures and documentation of the names that it uses."""

import pytest

from kb.project.tree import SHORT_FILE, names_in, signatures

FILLER = "x" * SHORT_FILE
PYTHON = f'''"""{FILLER}"""
LIMIT = 3
OTHER = 4


@final
class Mast(Base):
    """Holds the vane."""

    height: int
    def __init__(self, height):
        self.height = height

    def raise_by(
        self, metres: int
    ) -> int:
        """Higher."""
        return self.height + metres

    def lower(self):
        return 1


def unused(a):
    return a
'''
TYPESCRIPT = f"""// {FILLER}

/** Holds the vane. */
export class Mast {{
  constructor(height: number) {{
    this.height = height;
  }}
  raise(metres: number): number {{
    return metres;
  }}
  lower() {{ return 1; }}
}}
export const turn = (degrees: number) => {{
  return degrees;
}};
export interface Vane {{
  length: number;
}}
export default function calibrate() {{
  return 2;
}}
"""
RUST = f"""// {FILLER}
/// Holds the vane.
pub struct Mast {{
    height: u32,
}}
impl Mast {{
    /// A mast.
    pub fn new() -> Mast {{
        Mast {{ height: 1 }}
    }}
    pub fn lower(&self) {{
        panic!()
    }}
}}
"""
GO = f"""// {FILLER}
package wind

// Raise it.
func (m *Mast) Raise(by int) int {{
	return by
}}

func lower() int {{
	return 1
}}
"""


@pytest.mark.parametrize(
    ("path", "source", "used", "shown"),
    [
        ("a.py", PYTHON, "LIMIT", "LIMIT = 3"),
        (
            "a.py",
            PYTHON,
            "Mast(2).raise_by(1)",
            '@final\nclass Mast(Base):\n    """Holds the vane."""\n…\n    height: int\n'
            "    def __init__(self, height):\n…\n    def raise_by(\n        self, metres: int\n"
            '    ) -> int:\n        """Higher."""',
        ),
        ("a.py", PYTHON, "raise_by", ""),  # of a class that is not named
        ("a.py", f'"{FILLER}"\nfrom .mast import Mast\n', "Mast", ""),
        ("__init__.py", f'"{FILLER}"\nfrom .mast import Mast\n', "Mast", "from .mast import Mast"),
        (
            "a.ts",
            TYPESCRIPT,
            "new Mast(2).raise(1)",
            "/** Holds the vane. */\nexport class Mast {\n  constructor(height: number) {\n…\n"
            "  raise(metres: number): number {\n…\nexport default function calibrate() {",
        ),
        (
            "a.ts",
            TYPESCRIPT,
            "turn(v as Vane)",
            "export const turn = (degrees: number) => {\n…\nexport interface Vane {\n"
            "  length: number;\n}\nexport default function calibrate() {",
        ),
        ("b.ts", f"// {FILLER}\nexport * from './a';\n", "Mast", "export * from './a';"),
        (
            "a.rs",
            RUST,
            "Mast::new()",
            "/// Holds the vane.\npub struct Mast {\n    height: u32,\n}\n…\n"
            "    /// A mast.\n    pub fn new() -> Mast {",
        ),
        ("a.go", GO, "m.Raise(2)", "// Raise it.\nfunc (m *Mast) Raise(by int) int {"),
        ("a.css", f"/* {FILLER} */\n", "Mast", ""),
        ("a.css", "p {}\n", "Mast", "p {}\n"),
    ],
)
def test_of_a_file_the_names_in_use_are_shown(
    path: str, source: str, used: str, shown: str
) -> None:
    if path == "a.rs":  # the comment of the file is not that of its first item
        source = source.replace("\n///", "\n\n///", 1)
    assert signatures(path, source, names_in(used, used)) == shown


def test_a_name_counts_where_the_file_renames_it() -> None:
    assert "Mast" in names_in("pole.height", "from wind import Mast as pole\n\npole.height")


@pytest.mark.parametrize("path", ["a.py", "a.ts", "a.go", "a.rs", "a.c", "a.java", "a.rb", "a.cpp"])
def test_source_that_is_hard_to_parse_takes_bounded_time(path: str) -> None:
    assert isinstance(signatures(path, "{(" * 100_000, {"a"}), str)
