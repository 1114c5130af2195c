# Reads the sources of the standard library, and keeps what it made of them: syntax trees, tokens,
# counters, strings. Grows until it is ended.
import ast
import collections
import os
import re
import sysconfig
import time

kept = []
round_number = 0

while True:
    names = []
    for directory, _, files in os.walk(sysconfig.get_paths()["stdlib"]):
        if "test" in directory or "site-packages" in directory:
            continue
        names += [os.path.join(directory, name) for name in files if name.endswith(".py")]
    for name in sorted(names):
        try:
            with open(name, encoding="utf-8") as file:
                text = file.read()
            tree = ast.parse(text)
        except (SyntaxError, UnicodeDecodeError, ValueError, OSError):
            continue
        words = re.findall(r"\w+", text)
        kept.append({
            "name": f"{name}#{round_number}",
            "lines": text.splitlines(),
            "counts": collections.Counter(words),
            "places": [(word, index, index * 0.5) for index, word in enumerate(words[:400])],
            "tree": [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)],
        })
        time.sleep(0.0005)
    round_number += 1
