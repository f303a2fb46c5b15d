"""The SBOM names each crate that is in the program, and few more: bill.py SBOM < `cargo tree` of them.

More are those that features of tests switch on, which Cargo's metadata does not tell apart.
"""

import json
import sys

bill = json.load(open(sys.argv[1]))
assert bill["bomFormat"] == "CycloneDX", bill["bomFormat"]
main = bill["metadata"]["component"]
named = {f"{part['name']} v{part['version']}" for part in [main, *bill["components"]]}
# `name v1.2.3 (proc-macro)`, `name v1.2.3 (/path)`: the first two words say which it is.
shipped = {" ".join(line.split()[:2]) for line in sys.stdin if line.strip()}
assert len(shipped) > 100, f"{len(shipped)} crates"
print("in the program, and not in the SBOM:", sorted(shipped - named))
print("in the SBOM, and not in the program:", sorted(named - shipped))
sys.exit(bool(shipped - named) or len(named - shipped) > 20)
