"""What no file may name, and what the README must not promise in vain."""

import re

# Put together from parts, so that this file does not name them either.
HOSTS = [
    ".".join(parts)
    for parts in (
        ("pypi", "org"),
        ("python" + "hosted", "org"),
        ("npmjs", "org"),
        ("npmjs", "com"),
        ("deb", "debian", "org"),
        ("download", "pytorch", "org"),
    )
]
FORBIDDEN = re.compile(
    "|".join(re.escape(host) for host in HOSTS)
    # a path of one person's machine; paths inside containers (/app, /root, …) are fine
    + r"|(?<![\w.])/(?:work|home/[a-z]\w*|Users/\w+)/[\w.]"
)


def test_no_registry_host_and_no_path_of_one_machine(root, files):
    found = []
    for path in files:
        try:
            lines = path.read_text().splitlines()
        except UnicodeDecodeError:
            continue
        found += [
            f"{path.relative_to(root)}:{number}: {match[0]}"
            for number, line in enumerate(lines, start=1)
            if (match := FORBIDDEN.search(line))
        ]
    assert not found, "\n".join(found)


def test_make_commands_in_prose_exist(root, files):
    targets = set(re.findall(r"^([a-z-]+):", (root / "Makefile").read_text(), re.MULTILINE))
    missing = [
        f"{path.relative_to(root)}: make {target}"
        for path in files
        if path.suffix == ".md"
        for target in re.findall(r"^(?:\$ )?make ([a-z-]+)", path.read_text(), re.MULTILINE)
        if target not in targets
    ]
    assert not missing, "\n".join(missing)
