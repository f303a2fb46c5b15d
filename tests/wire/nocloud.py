"""What cloud-init's own code makes of a disc image: its files, as isoinfo took them out of it, in the
place where the data source NoCloud looks for them. One JSON object on standard output.

usage: nocloud.py FOLDER    (with user-data, meta-data and perhaps network-config)
"""

import json
import os
import shutil
import sys

from cloudinit import distros, helpers, net, util
from cloudinit.config import schema
from cloudinit.net import eni, netplan, network_state
from cloudinit.sources import DataSourceNoCloud


def main(folder):
    root = os.path.join(folder, "root")
    paths = helpers.Paths(
        {
            "cloud_dir": os.path.join(root, "var/lib/cloud"),
            "run_dir": os.path.join(root, "run/cloud-init"),
            "templates_dir": os.path.join(root, "etc/cloud/templates"),
        }
    )
    seed = os.path.join(paths.seed_dir, "nocloud")
    os.makedirs(seed)
    os.makedirs(paths.run_dir)
    for name in ("user-data", "meta-data", "network-config"):
        if os.path.exists(os.path.join(folder, name)):
            shutil.copy(os.path.join(folder, name), seed)

    distro = distros.fetch("debian")("debian", {}, paths)
    source = DataSourceNoCloud.DataSourceNoCloud(
        {"datasource": {"NoCloud": {"fs_label": None}}}, distro, paths
    )
    # Cards are looked up on this machine, which has other ones.
    known = {}
    net.get_interfaces_by_mac = lambda *_, **__: known
    found = source.get_data()
    user_data = source.get_userdata_raw()
    if isinstance(user_data, bytes):
        user_data = user_data.decode()
    config = util.load_yaml(user_data)
    schema.validate_cloudconfig_schema(config, schema.get_schema(), strict=True)

    out = {
        "found": found,
        "instanceId": source.get_instance_id(),
        "hostname": str(getattr(source.get_hostname(), "hostname", source.get_hostname())),
        "keys": source.get_public_ssh_keys(),
        "config": config,
        # What a part of the archive it becomes is taken for.
        "type": [part.get_content_type() for part in source.get_userdata().walk()][1:],
    }
    if source.network_config:
        for number, card in enumerate(source.network_config["ethernets"].values()):
            known[card["match"]["macaddress"]] = "eth%d" % number
        state = network_state.parse_net_config_data(source.network_config)
        out["netplan"] = netplan.Renderer({})._render_content(state)
        eni.Renderer().render_network_state(
            network_state.parse_net_config_data(source.network_config), target=root
        )
        with open(os.path.join(root, "etc/network/interfaces")) as interfaces:
            out["interfaces"] = interfaces.read()
    json.dump(out, sys.stdout)


main(sys.argv[1])
