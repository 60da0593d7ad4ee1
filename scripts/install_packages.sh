#!/usr/bin/env bash
# Installs what Penstock needs from Debian 12's packages, as root or with sudo. Does nothing when all are there.
# Usage: scripts/install_packages.sh [--development]     (--development: also what .ci/run needs)
set -eu
packages=(
  g++ cmake ninja-build pkg-config
  libopenmpi-dev openmpi-bin libhdf5-openmpi-dev libtbb-dev libyaml-cpp-dev libdnnl-dev libxxhash-dev libfmt-dev
  libcli11-dev nlohmann-json3-dev
  libgtest-dev libgmock-dev libbenchmark-dev
  python3-h5py python3-matplotlib python3-yaml
)
if [ "${1:-}" = "--development" ]; then
  packages+=(clang clang-format clang-tidy libclang-rt-14-dev ccache git)
fi

missing=()
for package in "${packages[@]}"; do
  dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' || missing+=("$package")
done
[ ${#missing[@]} -eq 0 ] && exit 0

echo "installing: ${missing[*]}"
as_root=()
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null || { echo "error: these packages are missing and neither root nor sudo is at hand: ${missing[*]}" >&2; exit 1; }
  as_root=(sudo)
fi
"${as_root[@]}" apt-get update -qq
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}"
