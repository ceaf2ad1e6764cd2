"""Check the RFC 6962 inclusion proofs of an audit: python inclusion_proof.py AUDIT.json [TREE_ROOT]"""

import hashlib
import json
import pathlib
import sys


def root_of(region: dict) -> str:
    leaf = json.dumps(region["manifest_entry"], sort_keys=True, separators=(",", ":"), ensure_ascii=False) + "\n"
    node = hashlib.sha256(b"\0" + leaf.encode()).digest()
    place, last = region["entry"], region["entries"] - 1
    for sibling in map(bytes.fromhex, region["inclusion_proof"]):
        if last == 0:
            return "the proof is too long"
        left = place % 2 == 1 or place == last
        node = hashlib.sha256(b"\1" + (sibling + node if left else node + sibling)).digest()
        while left and place and place % 2 == 0:
            place, last = place // 2, last // 2
        place, last = place // 2, last // 2
    return node.hex() if last == 0 else "the proof is too short"


regions = json.loads(pathlib.Path(sys.argv[1]).read_bytes())["regions"]
failed = 0
for region in regions:
    holds = root_of(region) == (sys.argv[2] if len(sys.argv) > 2 else region["tree_root"])
    failed += not holds
    print(f"{region['generation']}/{region['region']}: {'included' if holds else 'NOT INCLUDED'}")
sys.exit(1 if failed or not regions else 0)
