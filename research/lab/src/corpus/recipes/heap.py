# Reads the sources of the standard library, and keeps what it made of them: syntax trees, tokens,
# counters, strings. Grows until it is ended, or there is a file "enough". From then on it looks at
# what it has, mostly at the same few, and replaces a little.
import ast
import collections
import os
import random
import re
import sysconfig
import time

kept = []
round_number = 0


def work():
    while True:
        used = kept[int(len(kept) ** random.random()) - 1]
        used["used"] = sum(used["counts"].values()) + sum(len(line) for line in used["lines"])
        if random.random() < 0.05:
            counts = collections.Counter(used["counts"])
            kept[random.randrange(len(kept))] = {**used, "counts": counts, "lines": used["lines"][:]}
        time.sleep(0.25)


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
        if os.path.exists("enough"):
            work()
    round_number += 1
