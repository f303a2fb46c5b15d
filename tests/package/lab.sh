# shellcheck shell=sh
# For scripts that run the service on a simulated cluster. To be read into one of them, with the first line
# of `drover sim` in $facts.

# fact NAME: one of the simulator's facts.
# shellcheck disable=SC2154 # of the script that reads this
fact() { printf %s "$facts" | python3 -c 'import json, sys; print(json.load(sys.stdin)[sys.argv[1]])' "$1"; }

# lab_yaml [KEYS]: a configuration for that cluster, whose authority is in ca.pem beside it. KEYS are more
# of the template's keys.
lab_yaml() {
  cat <<YAML
credentials:
  proxmox: {kind: proxmoxToken, tokenId: "$(fact tokenId)", systemdCredential: proxmox-token}
  agents: {kind: sshKey, username: debian, systemdCredential: agent-ssh-key}
cloudConfigurations:
  lab: {name: Lab, apiUrl: "$(fact url)", caFile: ca.pem, credentialsId: proxmox, startVmId: 10000}
agentConfigurations:
  linux:
    {cloudIds: [lab], name: linux, node: "$(fact node)", templateVmId: 9000, labelString: linux,
     credentialsId: agents, ciUser: debian, ipConfig: "ip=dhcp"${1:+, $1}}
YAML
}
