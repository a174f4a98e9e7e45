#!/usr/bin/env bash
# Make what the test hosts are built from, once; a second run finds it made and ends at once.
#
#   sudo tests/lab/setup.sh            everything
#   sudo tests/lab/setup.sh rootfs     only the packages of this machine and the hosts' root file systems
#   sudo tests/lab/setup.sh packages   only the packages of this machine
#   sudo tests/lab/setup.sh vm         everything, and what virtual machines boot from (for `make test-full`)
#
# In ${SGLANG_TEST_CACHE:-/var/cache/serving-sglang}:
#   rootfs-bookworm   Debian 12 with systemd, Python and an SSH server: what a host starts from
#   rootfs-trixie     Debian 13 with the same, Podman and Docker
#   sglang/VERSION    virtual environments that the hosts of Debian 12 see as /opt/sglang/VERSION (real SGLang, on the
#                     CPU), with stubs/: 0.5.22 and 0.5.23
#   models/tiny       a model of some hundred kilobytes, seen as /srv/models/tiny
#   images            what a registry serves: images of the two releases for the hosts of Debian 13, see image.py
#   wheels            smg with its dependencies, and SGLang's own wheels, seen as /srv/wheels: the hosts have no internet
#   vm                kernel, RAM disk and disk of the hosts that are virtual machines
#
# Needs root, a Debian or Ubuntu machine of amd64, Debian's mirror and a package index for pip. pip's settings on this
# machine (files and variables) hold for the environment too. SGLANG_TEST_MIRROR names another Debian mirror.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${SGLANG_TEST_CACHE:-/var/cache/serving-sglang}
sglang_version=0.5.22
next_version=0.5.23
torchvision_version=0.28.0
smg_version=1.13.0
rootfs=$cache/rootfs-bookworm # what everything else is made in
venv=$cache/sglang/$sglang_version
stamps=$cache/stamps
work=""
beside="" # the process that makes a part while others are made

machine_packages=(
  systemd-container mmdebstrap iproute2 openssh-client util-linux ca-certificates python3 debian-archive-keyring
  skopeo docker-registry binutils
)
host_packages=(
  systemd systemd-sysv dbus udev openssh-server sudo procps iproute2 iputils-ping ca-certificates curl
  python3 python3-apt python3-psutil python3-requests python3-venv python3-yaml libnuma1
)
engine_packages=(podman crun netavark docker.io docker-cli skopeo)

say() { printf 'lab: %s\n' "$*"; }
fail() { printf 'lab: %s\n' "$*" >&2; exit 1; }

clean_up() {
  if [ -n "$beside" ]; then kill "$beside" 2>/dev/null || true; wait "$beside" || true; fi
  if [ -n "$work" ]; then rm -rf "$work"; fi
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

check_machine() {
  [ "$(id -u)" = 0 ] || fail "needs root: it makes root file systems, mounts and network namespaces. Run it with sudo."
  command -v apt-get >/dev/null || fail "needs a Debian or Ubuntu machine (apt-get is not here)."
  [ "$(dpkg --print-architecture)" = amd64 ] || fail "needs amd64: SGLang's wheel for the CPU tests is built for it, this machine is $(dpkg --print-architecture)."
  mkdir -p "$cache" "$stamps"
}

need_disk() { # need_disk MIB WHAT
  local free
  free=$(df --output=avail -m "$cache" | tail -1)
  [ "$free" -ge "$1" ] || fail "$2 takes about $1 MiB, and the disk of $cache has $free MiB free. Free some, or set SGLANG_TEST_CACHE to another disk."
}

# Everything that a part is made from, as one hash. A part whose hash is on record is not made again.
hash_of() { sha256sum | cut -c1-16; }
is_made() { [ -e "$3" ] && [ "$(cat "$stamps/$1" 2>/dev/null)" = "$2" ]; } # is_made PART HASH PATH
put_in_place() { # put_in_place PART HASH MADE PATH: from its temporary name to its own
  # The hosts see the folder above the model: for them a new one takes the old one's place.
  [ "$1" = model ] || refuse_if_in_use "$4"
  rm -f "$stamps/$1"
  mkdir -p "$(dirname "$4")"
  if [ -e "$4" ]; then mv "$4" "$work/replaced-$1"; fi
  mv "$3" "$4"
  echo "$2" > "$stamps/$1"
}
refuse_if_in_use() {
  local fleets
  [ ! -e "$1" ] || "$here/../hosts/hosts" prune
  fleets=$(ls -A "$cache/fleets" 2>/dev/null || true)
  if [ -e "$1" ] && [ -n "$fleets" ]; then
    fail "$1 has to be made anew, but test hosts run from it: ${fleets//$'\n'/ }. Take them down first: tests/hosts/hosts down --fleet NAME"
  fi
}

install_machine_packages() {
  local missing=() package
  for package in "${machine_packages[@]}"; do
    dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' || missing+=("$package")
  done
  [ ${#missing[@]} -gt 0 ] || return 0
  say "installing ${missing[*]}"
  apt-get update -qq || say "apt-get update failed; going on with the package lists that are here"
  # The tests start registries of their own; Debian's would listen on all addresses as soon as it is installed.
  [[ " ${missing[*]} " != *" docker-registry "* ]] || systemctl --root=/ --quiet --runtime mask docker-registry.service 2>/dev/null || true
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >"$work/apt.log" 2>&1 \
    || { tail -20 "$work/apt.log" >&2; fail "apt-get could not install ${missing[*]}: see above."; }
  if [[ " ${missing[*]} " == *" docker-registry "* ]]; then
    systemctl --root=/ --quiet disable docker-registry.service 2>/dev/null || true
    systemctl --root=/ --quiet --runtime unmask docker-registry.service 2>/dev/null || true
  fi
}

# systemd-nspawn derives the hosts' hardware addresses from this machine's id; images of machines come without one.
set_machine_id() {
  [ -s /etc/machine-id ] || systemd-machine-id-setup >/dev/null 2>&1 || fail "/etc/machine-id is empty and could not be made."
}

debian_mirror() {
  local found
  # shellcheck disable=SC2016  # apt fills these in
  found=${SGLANG_TEST_MIRROR:-$(apt-get indextargets --format '$(ORIGIN) $(REPO_URI)' 'Created-By: Packages' \
    | grep '^Debian ' | grep -v security | head -1 | cut -d' ' -f2)}
  echo "${found:-http://deb.debian.org/debian}"
}

packages_of() { # packages_of SUITE
  echo "${host_packages[@]}"
  [ "$1" = bookworm ] || echo "${engine_packages[@]}"
}

customize_rootfs() { # customize_rootfs SUITE: a script, run by mmdebstrap with the new root as its argument
  cat <<'HOOK'
set -eu
root=${1:?}
: > "$root/etc/machine-id"
rm -f "$root"/etc/ssh/ssh_host_*
chroot "$root" systemctl -q enable systemd-networkd ssh
chroot "$root" systemctl -q mask apt-daily.timer apt-daily-upgrade.timer e2scrub_all.timer fstrim.timer \
  dpkg-db-backup.timer systemd-networkd-wait-online.service
chroot "$root" useradd --create-home --shell /bin/bash ops
echo 'ops ALL=(ALL) NOPASSWD: ALL' > "$root/etc/sudoers.d/ops"
chmod 0440 "$root/etc/sudoers.d/ops"
install -d -m 0755 "$root/opt/sglang" "$root/srv/models" "$root/srv/wheels"
printf '[global]\nno-index = true\nfind-links = /srv/wheels\ndisable-pip-version-check = true\n' > "$root/etc/pip.conf"
HOOK
  [ "$1" = bookworm ] || cat <<'HOOK'
# Containers use the host's network. The registry of the tests speaks plain HTTP, and no other is reached from here.
mkdir -p "$root/etc/docker" "$root/etc/containers/registries.conf.d"
echo '{"bridge": "none", "iptables": false, "ip6tables": false, "insecure-registries": ["10.77.0.1:5000"]}' \
  > "$root/etc/docker/daemon.json"
printf '[[registry]]\nlocation = "10.77.0.1:5000"\ninsecure = true\n' > "$root/etc/containers/registries.conf.d/test.conf"
# Docker starts with the first who asks for it: most hosts never do.
chroot "$root" systemctl -q disable docker.service containerd.service
chroot "$root" systemctl -q enable docker.socket
chroot "$root" systemctl -q mask podman-auto-update.timer
rm -f "$root/usr/bin/containerd-stress"
HOOK
}

part_of() { [ "$1" = bookworm ] && echo rootfs || echo "rootfs-$1"; } # part_of SUITE: the name of its stamp

make_rootfs() { # make_rootfs SUITE
  local suite=$1 hash mirror packages part
  part=$(part_of "$suite")
  packages=$(packages_of "$suite" | xargs)
  hash=$({ echo "$suite $packages"; customize_rootfs "$suite"; cat "$here"/host/*; } | hash_of)
  is_made "$part" "$hash" "$cache/rootfs-$suite" && return 0
  refuse_if_in_use "$cache/rootfs-$suite"
  need_disk 1500 "the hosts' root file system"
  mirror=$(debian_mirror)
  say "making the hosts' root file system (Debian $suite from $mirror, half a minute to one)"
  { echo "#!/bin/sh"; customize_rootfs "$suite"; } > "$work/customize-$suite"
  chmod +x "$work/customize-$suite"
  # Whatever ends this, its mounts and processes end with it.
  unshare --mount --propagation private --pid --fork --kill-child --mount-proc \
    mmdebstrap --quiet --variant=minbase --mode=root --aptopt='APT::Install-Recommends "false"' \
    --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
    --dpkgopt='path-exclude=/usr/share/doc/*' --include="${packages// /,}" \
    --customize-hook="$work/customize-$suite" "$suite" "$work/rootfs-$suite" \
    "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $suite main" >"$work/mmdebstrap-$suite.log" 2>&1 \
    || { tail -20 "$work/mmdebstrap-$suite.log" >&2; fail "Debian $suite could not be installed from $mirror: see above. SGLANG_TEST_MIRROR names another mirror."; }
  cp "$here"/host/* "$work/rootfs-$suite/usr/lib/python3/dist-packages/"
  put_in_place "$part" "$hash" "$work/rootfs-$suite" "$cache/rootfs-$suite"
}

# Run a shell script, read from standard input, in the hosts' system with this machine's network and pip settings.
# What it writes outside /build and /opt/sglang/VERSION is thrown away. Mounts and processes end with it.
in_rootfs() { # in_rootfs VERSION DIRECTORY_SEEN_AS_ITS_ENVIRONMENT
  local root=$work/root variables=() name
  mkdir -p "$root" "$work/upper" "$work/overlay" "$work/build"
  python3 "$here/pip_settings.py" conf > "$work/pip.conf"
  python3 "$here/pip_settings.py" paths > "$work/paths"
  while IFS= read -r name; do variables+=("$name"); done < <(python3 "$here/pip_settings.py" env)
  cat > "$work/build/script"
  # shellcheck disable=SC2016  # the inner shell fills these in
  unshare --mount --propagation private --pid --fork --kill-child bash -euo pipefail -c '
    rootfs=$1 work=$2 root=$2/root version=$3 environment=$4; shift 4
    mount -t overlay overlay -o "lowerdir=$rootfs,upperdir=$work/upper,workdir=$work/overlay" "$root"
    bind() { # bind PATH [READ-ONLY]
      if [ -d "$1" ]; then mkdir -p "$root$2"; else mkdir -p "$(dirname "$root$2")"; [ -e "$root$2" ] || : > "$root$2"; fi
      mount --bind "$1" "$root$2"
    }
    cp -L /etc/resolv.conf "$root/etc/resolv.conf"; cp -L /etc/hosts "$root/etc/hosts"
    cp "$work/pip.conf" "$root/etc/pip.conf"
    mount -t proc proc "$root/proc"; mount --rbind /dev "$root/dev"
    bind "$work/build" /build; bind "$environment" "/opt/sglang/$version"
    while IFS= read -r path; do bind "$path" "$path"; done < "$work/paths"
    exec chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/build LANG=C.UTF-8 "$@" bash -euo pipefail /build/script
  ' bash "$rootfs" "$work" "$1" "$2" "${variables[@]}"
}

# PyTorch on PyPI is the build for CUDA, gigabytes larger. Its own index has the build for the CPU, where it is reached.
cpu_torch_index() {
  local index=https://download.pytorch.org/whl/cpu
  if python3 -c 'import sys, urllib.request; urllib.request.urlopen(sys.argv[1], timeout=3)' "$index/torch/" 2>/dev/null; then
    echo "--extra-index-url=$index"
  fi
}

make_sglang() {
  local hash torch_index
  hash=$({ echo "$sglang_version $torchvision_version"; cat "$here/sglang-cpu.lock"; } | hash_of)
  is_made sglang "$hash" "$venv" && return 0
  refuse_if_in_use "$venv"
  need_disk 8000 "SGLang's environment"
  torch_index=$(cpu_torch_index)
  say "installing SGLang $sglang_version for the CPU (about 3 GB, one to three minutes)"
  mkdir -p "$work/sglang" "$work/build"
  cp "$here/sglang-cpu.lock" "$work/build/"
  in_rootfs "$sglang_version" "$work/sglang" >"$work/sglang.log" 2>&1 <<BUILD || { grep -v '^Collecting\|^Requirement' "$work/sglang.log" | tail -20 >&2; fail "SGLang could not be installed: see above."; }
python3 -m venv --clear /opt/sglang/$sglang_version
cd /build
pip=/opt/sglang/$sglang_version/bin/pip
\$pip install --no-cache-dir --no-compile $torch_index -r sglang-cpu.lock
\$pip install --no-cache-dir --no-compile $torch_index --no-deps sglang==$sglang_version torchvision==$torchvision_version
\$pip check || true
/opt/sglang/$sglang_version/bin/python -m compileall -q -j 0 /opt/sglang/$sglang_version/lib || true
BUILD
  chmod -R u+w,a+rX "$work/sglang"
  put_in_place sglang "$hash" "$work/sglang" "$venv"
}

# The next release needs the same packages: its environment shares their files with the other one, by hard links.
make_next_sglang() {
  local hash
  hash=$(cat "$stamps/sglang" <(echo "$next_version") | hash_of)
  is_made "sglang-$next_version" "$hash" "$cache/sglang/$next_version" && return 0
  refuse_if_in_use "$cache/sglang/$next_version"
  need_disk 1000 "SGLang's environment"
  say "installing SGLang $next_version beside it"
  cp --archive --link "$venv" "$work/sglang-next"
  rm -rf "$work/sglang-next/stubs"
  # sed writes the scripts that name their environment anew; in place, they would change in both.
  grep -rlI "/opt/sglang/$sglang_version" "$work/sglang-next/bin" "$work/sglang-next/pyvenv.cfg" \
    | xargs sed -i "s,/opt/sglang/$sglang_version,/opt/sglang/$next_version,g"
  in_rootfs "$next_version" "$work/sglang-next" >"$work/sglang-next.log" 2>&1 <<BUILD || { tail -20 "$work/sglang-next.log" >&2; fail "SGLang $next_version could not be installed: see above."; }
/opt/sglang/$next_version/bin/pip install --no-cache-dir --no-compile --no-deps sglang==$next_version
/opt/sglang/$next_version/bin/python -m compileall -q -j 0 /opt/sglang/$next_version/lib/python3*/site-packages/sglang || true
BUILD
  chmod -R u+w,a+rX "$work/sglang-next"
  put_in_place "sglang-$next_version" "$hash" "$work/sglang-next" "$cache/sglang/$next_version"
}

# A part of its own: a changed stub is no reason to install SGLang anew.
make_stubs() { # make_stubs PART ENVIRONMENT
  local hash
  hash=$({ cd "$here/stubs" && find . -name '*.py' | sort | xargs cat; } | hash_of)
  is_made "$1" "$hash" "$2/stubs" && return 0
  refuse_if_in_use "$2/stubs"
  mkdir "$work/$1"
  (cd "$here/stubs" && find . -name '*.py' -exec cp --parents {} "$work/$1" \;)
  chmod -R u+w,a+rX "$work/$1"
  put_in_place "$1" "$hash" "$work/$1" "$2/stubs"
}

make_model() {
  local hash
  hash=$(hash_of < "$here/make_model.py")
  is_made model "$hash" "$cache/models/tiny" && return 0
  say "making the tiny model"
  mkdir -p "$work/build"
  cp "$here/make_model.py" "$work/build/"
  in_rootfs "$sglang_version" "$venv" >"$work/model.log" 2>&1 <<BUILD || { tail -20 "$work/model.log" >&2; fail "the tiny model could not be made: see above."; }
/opt/sglang/$sglang_version/bin/python /build/make_model.py /build/tiny
BUILD
  put_in_place model "$hash" "$work/build/tiny" "$cache/models/tiny"
}

make_wheels() {
  local hash
  hash=$(echo "smg $smg_version sglang $sglang_version $next_version python 3.11 3.13" | hash_of)
  is_made wheels "$hash" "$cache/wheels" && return 0
  refuse_if_in_use "$cache/wheels"
  need_disk 500 "the hosts' wheels"
  say "fetching the wheels of smg $smg_version and SGLang $sglang_version and $next_version"
  in_rootfs "$sglang_version" "$venv" >"$work/wheels.log" 2>&1 <<BUILD || { tail -20 "$work/wheels.log" >&2; fail "the wheels could not be fetched: see above."; }
mkdir /build/wheels
cd /build/wheels
pip="/opt/sglang/$sglang_version/bin/pip download --no-cache-dir --only-binary :all:"
\$pip smg==$smg_version
\$pip --python-version 3.13 smg==$smg_version
\$pip --no-deps sglang==$sglang_version
\$pip --no-deps sglang==$next_version
BUILD
  chmod -R a+rX "$work/build/wheels"
  put_in_place wheels "$hash" "$work/build/wheels" "$cache/wheels"
}

# shellcheck source=tests/lab/vm.sh
. "$here/vm.sh"

make_images() {
  local hash
  hash=$(cd "$stamps" && cat rootfs sglang stubs "sglang-$next_version" "$here/image.py" | hash_of)
  is_made images "$hash" "$cache/images" && return 0
  need_disk 4000 "the images"
  say "making the images of SGLang $sglang_version and $next_version"
  python3 "$here/image.py" "$cache" "$work/images" >"$work/images.log" 2>&1 \
    || { tail -20 "$work/images.log" >&2; fail "the images could not be made: see above."; }
  put_in_place images "$hash" "$work/images" "$cache/images"
}

main() {
  check_machine
  exec 9>"$cache/setup.lock"
  flock --nonblock 9 || { say "another set-up is at work; waiting for it"; flock 9; }
  rm -rf "$cache"/partial.*
  work=$(mktemp -d "$cache/partial.XXXXXX")
  chmod 0755 "$work"
  [ "${1:-all}" != vm ] || machine_packages+=("${vm_packages[@]}")
  install_machine_packages
  [ "${1:-all}" != packages ] || return 0
  set_machine_id
  make_rootfs bookworm
  if [ "${1:-all}" != rootfs ]; then
    # Most of the time that an environment takes is spent waiting for the network.
    make_rootfs trixie &
    beside=$!
    make_sglang
    make_next_sglang
    make_stubs stubs "$venv"
    make_stubs "stubs-$next_version" "$cache/sglang/$next_version"
    make_model
    make_wheels
    make_images
    wait "$beside"
    beside=""
  else
    make_rootfs trixie
  fi
  [ "${1:-all}" != vm ] || make_vm
  say "ready in $cache"
}

case ${1:-all} in
  all | rootfs | packages | vm) main "$@" ;;
  *) sed -n '2,/^set -/p' "$0" | sed '$d; s/^# \{0,1\}//'; exit 2 ;;
esac
