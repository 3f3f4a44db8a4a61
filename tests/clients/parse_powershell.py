"""Parses the PowerShell module with tree-sitter. No package registry has PowerShell itself.

    pip install tree-sitter tree-sitter-powershell
    python3 parse_powershell.py ../../examples/clients/TenantDesk.psm1
"""

import sys

import tree_sitter
import tree_sitter_powershell

# What Windows PowerShell 5.1 does not know.
ONLY_IN_7 = ("??", "?.", "&&", "||")


def faults(node):
    if node.type == "ERROR" or node.is_missing or node.type in ONLY_IN_7:
        yield f"line {node.start_point[0] + 1}: {node.type}: {node.text.decode()[:80]}"
    for child in node.children:
        yield from faults(child)


parser = tree_sitter.Parser(tree_sitter.Language(tree_sitter_powershell.language()))
for path in sys.argv[1:]:
    with open(path, "rb") as file:
        source = file.read()
    found = list(faults(parser.parse(source).root_node))
    if not source.isascii():
        found.append("not ASCII: 5.1 reads it in the code page of Windows")
    if found:
        sys.exit("\n".join(f"{path}: {fault}" for fault in found))
