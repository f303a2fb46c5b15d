"""The Kubernetes example: each document has its kind's strict schema, and keeps what it promises."""

import sys

import kubernetes_validate
import yaml

documents = list(yaml.safe_load_all(open(sys.argv[1])))
for document in documents:
    kubernetes_validate.validate(document, "1.30", strict=True)
kinds = {document["kind"]: document for document in documents}
wanted = {"Namespace", "Secret", "ConfigMap", "PersistentVolumeClaim", "Deployment", "NetworkPolicy"}
assert set(kinds) == wanted, kinds.keys()

spec = kinds["Deployment"]["spec"]
assert spec["replicas"] == 1 and spec["strategy"]["type"] == "Recreate", "one writer of the journal"
pod = spec["template"]["spec"]
assert pod["securityContext"]["runAsNonRoot"] and pod["securityContext"]["runAsUser"] == 10001
(container,) = pod["containers"]
security = container["securityContext"]
assert security["readOnlyRootFilesystem"] and not security["allowPrivilegeEscalation"]
assert security["capabilities"] == {"drop": ["ALL"]}
assert container["resources"]["limits"].keys() == {"cpu", "memory"}

mounts = {mount["name"] for mount in container["volumeMounts"]}
assert mounts == {volume["name"] for volume in pod["volumes"]}
(config,) = [volume["projected"] for volume in pod["volumes"] if volume["name"] == "config"]
# Octal in YAML 1.1; a 0 too few would let others read the secrets.
assert config["defaultMode"] == 0o440
names = {source[kind]["name"] for source in config["sources"] for kind in source}
assert names == {kinds["Secret"]["metadata"]["name"], kinds["ConfigMap"]["metadata"]["name"]}
items = [source["secret"]["items"] for source in config["sources"] if "secret" in source]
assert {item["key"] for item in items[0]} == set(kinds["Secret"]["stringData"])
claims = [volume["persistentVolumeClaim"]["claimName"] for volume in pod["volumes"] if "persistentVolumeClaim" in volume]
assert claims == [kinds["PersistentVolumeClaim"]["metadata"]["name"]]

labels = spec["template"]["metadata"]["labels"]
policy = kinds["NetworkPolicy"]["spec"]
assert policy["podSelector"]["matchLabels"].items() <= labels.items()
assert policy["ingress"] == [] and "Egress" in policy["policyTypes"]

# For `drover check`, which the tier runs on it.
open(sys.argv[2], "w").write(kinds["ConfigMap"]["data"]["drover.yaml"])
