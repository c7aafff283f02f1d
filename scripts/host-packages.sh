#!/usr/bin/env bash
# Installs what the test cluster needs from this machine's Debian: at once nothing to do when it is all there.
set -euo pipefail
packages=(
  runc containernetworking-plugins                 # containers and their networks
  iptables iproute2 conntrack ethtool socat kmod   # what kubelet and kube-proxy call
  util-linux openssl ca-certificates               # namespaces, certificates
  debootstrap buildah golang-github-containers-common  # the images
  gcc libc6-dev                                    # the sandbox process
  python3-venv
)
missing=()
for package in "${packages[@]}"; do
  [ "$(dpkg-query -Wf '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || missing+=("$package")
done
if [ ${#missing[@]} -gt 0 ]; then
  [ "$(id -u)" = 0 ] || { echo "as root, please: apt-get install ${missing[*]}" >&2; exit 1; }
  echo "installing ${missing[*]}"
  apt-get update -qq
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
fi
