#!/usr/bin/env bash
# Make what the test hosts are built from, once; a second run finds it made and ends at once.
#
#   sudo tests/lab/setup.sh            everything
#   sudo tests/lab/setup.sh rootfs     only the packages of this machine and the hosts' root file system
#   sudo tests/lab/setup.sh packages   only the packages of this machine
#
# In ${SGLANG_TEST_CACHE:-/var/cache/serving-sglang}:
#   rootfs-bookworm   Debian 12 with systemd, Python and an SSH server: what every host starts from
#   sglang/0.5.22     virtual environment that the hosts see as /opt/sglang/0.5.22 (real SGLang, on the CPU), with stubs/
#   models/tiny       a model of some hundred kilobytes, seen as /srv/models/tiny
#   wheels            smg with its dependencies, and SGLang's own wheel, seen as /srv/wheels: the hosts have no internet
#
# Needs root, a Debian or Ubuntu machine of amd64, Debian's mirror and a package index for pip. pip's settings on this
# machine (files and variables) hold for the environment too. SGLANG_TEST_MIRROR names another Debian mirror.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${SGLANG_TEST_CACHE:-/var/cache/serving-sglang}
suite=bookworm
sglang_version=0.5.22
torchvision_version=0.28.0
smg_version=1.13.0
rootfs=$cache/rootfs-$suite
venv=$cache/sglang/$sglang_version
stamps=$cache/stamps
work=""

machine_packages=(
  systemd-container mmdebstrap iproute2 openssh-client util-linux ca-certificates python3 debian-archive-keyring
  skopeo docker-registry
)
host_packages=(
  systemd systemd-sysv dbus udev openssh-server sudo procps iproute2 iputils-ping ca-certificates curl
  python3 python3-apt python3-psutil python3-requests python3-venv python3-yaml libnuma1
)

say() { printf 'lab: %s\n' "$*"; }
fail() { printf 'lab: %s\n' "$*" >&2; exit 1; }

clean_up() {
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

customize_rootfs() { # run by mmdebstrap, with the new root as its argument
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
}

make_rootfs() {
  local hash mirror
  hash=$({ echo "$suite ${host_packages[*]}"; customize_rootfs; } | hash_of)
  is_made rootfs "$hash" "$rootfs" && return 0
  refuse_if_in_use "$rootfs"
  need_disk 1500 "the hosts' root file system"
  mirror=$(debian_mirror)
  say "making the hosts' root file system (Debian $suite from $mirror, about half a minute)"
  { echo "#!/bin/sh"; customize_rootfs; } > "$work/customize"
  chmod +x "$work/customize"
  mmdebstrap --quiet --variant=minbase --mode=root --aptopt='APT::Install-Recommends "false"' \
    --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
    --dpkgopt='path-exclude=/usr/share/doc/*' --include="$(IFS=,; echo "${host_packages[*]}")" \
    --customize-hook="$work/customize" "$suite" "$work/rootfs" \
    "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $suite main" >"$work/mmdebstrap.log" 2>&1 \
    || { tail -20 "$work/mmdebstrap.log" >&2; fail "Debian $suite could not be installed from $mirror: see above. SGLANG_TEST_MIRROR names another mirror."; }
  put_in_place rootfs "$hash" "$work/rootfs" "$rootfs"
}

# Run a shell script, read from standard input, in the hosts' system with this machine's network and pip settings.
# What it writes outside /build and /opt/sglang/VERSION is thrown away. Mounts and processes end with it.
in_rootfs() { # in_rootfs DIRECTORY_SEEN_AS_THE_ENVIRONMENT
  local root=$work/root variables=() name
  mkdir -p "$root" "$work/upper" "$work/overlay" "$work/build"
  python3 "$here/pip_settings.py" conf > "$work/pip.conf"
  python3 "$here/pip_settings.py" paths > "$work/paths"
  while IFS= read -r name; do variables+=("$name"); done < <(python3 "$here/pip_settings.py" env)
  cat > "$work/build/script"
  # shellcheck disable=SC2016  # the inner shell fills these in
  unshare --mount --propagation private --pid --fork --kill-child bash -euo pipefail -c '
    rootfs=$1 work=$2 root=$2/root environment=$3; shift 3
    mount -t overlay overlay -o "lowerdir=$rootfs,upperdir=$work/upper,workdir=$work/overlay" "$root"
    bind() { # bind PATH [READ-ONLY]
      if [ -d "$1" ]; then mkdir -p "$root$2"; else mkdir -p "$(dirname "$root$2")"; [ -e "$root$2" ] || : > "$root$2"; fi
      mount --bind "$1" "$root$2"
    }
    cp -L /etc/resolv.conf "$root/etc/resolv.conf"; cp -L /etc/hosts "$root/etc/hosts"
    cp "$work/pip.conf" "$root/etc/pip.conf"
    mount -t proc proc "$root/proc"; mount --rbind /dev "$root/dev"
    bind "$work/build" /build; bind "$environment" "/opt/sglang/$SGLANG_VERSION"
    while IFS= read -r path; do bind "$path" "$path"; done < "$work/paths"
    exec chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/build LANG=C.UTF-8 "$@" bash -euo pipefail /build/script
  ' bash "$rootfs" "$work" "$1" SGLANG_VERSION="$sglang_version" "${variables[@]}"
}
export SGLANG_VERSION=$sglang_version

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
  in_rootfs "$work/sglang" >"$work/sglang.log" 2>&1 <<BUILD || { grep -v '^Collecting\|^Requirement' "$work/sglang.log" | tail -20 >&2; fail "SGLang could not be installed: see above."; }
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

# A part of its own: a changed stub is no reason to install SGLang anew.
make_stubs() {
  local hash
  hash=$({ cd "$here/stubs" && find . -name '*.py' | sort | xargs cat; } | hash_of)
  is_made stubs "$hash" "$venv/stubs" && return 0
  refuse_if_in_use "$venv/stubs"
  mkdir "$work/stubs"
  (cd "$here/stubs" && find . -name '*.py' -exec cp --parents {} "$work/stubs" \;)
  chmod -R u+w,a+rX "$work/stubs"
  put_in_place stubs "$hash" "$work/stubs" "$venv/stubs"
}

make_model() {
  local hash
  hash=$(hash_of < "$here/make_model.py")
  is_made model "$hash" "$cache/models/tiny" && return 0
  say "making the tiny model"
  mkdir -p "$work/build"
  cp "$here/make_model.py" "$work/build/"
  in_rootfs "$venv" >"$work/model.log" 2>&1 <<BUILD || { tail -20 "$work/model.log" >&2; fail "the tiny model could not be made: see above."; }
/opt/sglang/$sglang_version/bin/python /build/make_model.py /build/tiny
BUILD
  put_in_place model "$hash" "$work/build/tiny" "$cache/models/tiny"
}

make_wheels() {
  local hash
  hash=$(echo "smg $smg_version sglang $sglang_version" | hash_of)
  is_made wheels "$hash" "$cache/wheels" && return 0
  refuse_if_in_use "$cache/wheels"
  need_disk 500 "the hosts' wheels"
  say "fetching the wheels of smg $smg_version and SGLang $sglang_version"
  in_rootfs "$venv" >"$work/wheels.log" 2>&1 <<BUILD || { tail -20 "$work/wheels.log" >&2; fail "the wheels could not be fetched: see above."; }
mkdir /build/wheels
cd /build/wheels
/opt/sglang/$sglang_version/bin/pip download --no-cache-dir --only-binary :all: smg==$smg_version
/opt/sglang/$sglang_version/bin/pip download --no-cache-dir --only-binary :all: --no-deps sglang==$sglang_version
BUILD
  chmod -R a+rX "$work/build/wheels"
  put_in_place wheels "$hash" "$work/build/wheels" "$cache/wheels"
}

main() {
  check_machine
  exec 9>"$cache/setup.lock"
  flock --nonblock 9 || { say "another set-up is at work; waiting for it"; flock 9; }
  rm -rf "$cache"/partial.*
  work=$(mktemp -d "$cache/partial.XXXXXX")
  chmod 0755 "$work"
  install_machine_packages
  [ "${1:-all}" != packages ] || return 0
  set_machine_id
  make_rootfs
  if [ "${1:-all}" = all ]; then
    make_sglang
    make_stubs
    make_model
    make_wheels
  fi
  say "ready in $cache"
}

case ${1:-all} in
  all | rootfs | packages) main "$@" ;;
  *) sed -n '2,/^set -/p' "$0" | sed '$d; s/^# \{0,1\}//'; exit 2 ;;
esac
