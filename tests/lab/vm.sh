# shellcheck shell=bash
# The part `vm` of setup.sh, which reads this file: what hosts that are virtual machines boot from.
#
# In $cache/vm:
#   vmlinuz           Debian 13's kernel for virtual machines
#   linux             Debian 12's kernel that runs as a program (User-Mode Linux)
#   initrd            the few lines that find the disk, for both
#   disk.raw          the root file system of the Debian 13 hosts with the modules of both kernels and the tiny model;
#                     hosts write to overlays
# shellcheck disable=SC2034,SC2154  # setup.sh uses what is set here, and sets what is used

vm_packages=(qemu-system-x86 qemu-utils busybox-static cpio e2fsprogs kmod)
vm_suite=trixie
vm_kernel=linux-image-cloud-amd64
vm_disk_mib=20480
# What stands between the kernel and the disk and is not built in.
vm_modules=(virtio_blk)

vm_init() { # vm_init MODULE...: the first process, from the initial RAM disk
  cat <<INIT
#!/bin/sh
b=/bin/busybox
\$b mount -t proc proc /proc; \$b mount -t sysfs sys /sys; \$b mount -t devtmpfs dev /dev
for module in $*; do \$b insmod /modules/\$module.ko 2>/dev/null; done
n=0; while [ ! -b /dev/vda ] && [ ! -b /dev/ubda ] && [ \$n -lt 300 ]; do \$b sleep 0.1; n=\$((n+1)); done
for disk in /dev/vda /dev/ubda; do [ ! -b \$disk ] || \$b mount -t ext4 -o rw,noatime \$disk /new; done
[ -x /new/sbin/init ] || { echo "no root file system was found"; \$b poweroff -f; }
# What makes this host the one that it is comes with its RAM disk. A disk that has been booted from keeps its own.
[ -e /new/etc/ssh/ssh_host_ed25519_key ] || \$b cp -a /host/. /new/
\$b umount /proc /sys; \$b mount --move /dev /new/dev
exec \$b switch_root /new /sbin/init
INIT
}

vm_settings() { # vm_settings ROOT: what a machine needs and a container does not
  printf '[Match]\nOriginalName=eth0 vec0\n[Link]\nName=host0\n' > "$1/etc/systemd/network/10-host0.link"
  : > "$1/etc/fstab"
  mkdir -p "$1/etc/systemd/system.conf.d"
  printf '[Manager]\nDefaultTimeoutStartSec=15min\nDefaultDeviceTimeoutSec=15min\n' > "$1/etc/systemd/system.conf.d/slow.conf"
  # Each of these is seconds of a processor that is translated, and nothing here needs them.
  chroot "$1" systemctl -q mask modprobe@efi_pstore.service modprobe@drm.service systemd-pstore.service ldconfig.service \
    systemd-networkd-persistent-storage.service systemd-journal-catalog-update.service getty@tty1.service \
    dev-hugepages.mount sys-kernel-debug.mount sys-kernel-tracing.mount
}

make_vm() {
  local hash mirror kernel
  hash=$({ cat "$stamps/$(part_of "$vm_suite")" "$stamps/model"; cat "$here/vm.sh"; } | hash_of)
  is_made vm "$hash" "$cache/vm" && return 0
  refuse_if_in_use "$cache/vm"
  need_disk 3000 "the disk of the virtual machines"
  mirror=$(debian_mirror)
  say "making the disk of the virtual machines (about half a minute)"
  fetch_kernels "$mirror" >"$work/kernel.log" 2>&1 || { tail -20 "$work/kernel.log" >&2; fail "the kernels could not be fetched from $mirror: see above."; }
  kernel=$(ls "$work/kernel/usr/lib/modules")
  mkdir -p "$work/vm" "$work/initrd"/{bin,dev,proc,sys,new,modules,host} "$work/vm-upper" "$work/vm-overlay" "$work/vm-root"
  cp "$work/kernel/boot/vmlinuz-$kernel" "$work/vm/vmlinuz"
  cp "$work/uml/usr/bin/linux.uml" "$work/vm/linux"
  make_initrd "$work/kernel/usr/lib/modules/$kernel"
  truncate -s "${vm_disk_mib}M" "$work/vm/disk.raw"
  # The mount of the two layers ends with the shell that makes it.
  export -f vm_settings
  # shellcheck disable=SC2016  # the inner shell fills these in
  unshare --mount --propagation private bash -euo pipefail -c '
    work=$1 root=$1/vm-root
    mount -t overlay overlay -o "lowerdir=$2,upperdir=$work/vm-upper,workdir=$work/vm-overlay" "$root"
    cp -a "$work/kernel/usr" "$root/"
    cp -a "$work/uml/usr/lib/uml/modules" "$root/usr/lib/"
    cp -a "$4/." "$root/srv/models/"
    depmod --basedir "$root" "$3"
    vm_settings "$root"
    mke2fs -q -t ext4 -d "$root" -E lazy_itable_init=1,lazy_journal_init=1,root_owner=0:0 "$work/vm/disk.raw"
  ' bash "$work" "$cache/rootfs-$vm_suite" "$kernel" "$cache/models" >"$work/vm.log" 2>&1 || { tail -20 "$work/vm.log" >&2; fail "the disk could not be made: see above."; }
  put_in_place vm "$hash" "$work/vm" "$cache/vm"
}

fetch_kernels() { # fetch_kernels MIRROR: and what loads their modules
  fetch "$1" "$vm_suite" "$work/kernel" "$vm_kernel" kmod
  # Built against the older C library, so that it runs on machines of either release.
  fetch "$1" bookworm "$work/uml" user-mode-linux
}

fetch() { # fetch MIRROR SUITE FOLDER PACKAGE...: unpacked; of a package without files, the first that it needs
  local apt=$3.apt mirror=$1 suite=$2 folder=$3 options package needs
  shift 3
  mkdir -p "$apt/state/lists/partial" "$apt/cache/archives/partial"
  : > "$apt/status"
  echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $suite main" > "$apt/sources.list"
  options=(-o "Dir::Etc::sourcelist=$apt/sources.list" -o Dir::Etc::sourceparts=- -o "Dir::State=$apt/state"
    -o "Dir::State::status=$apt/status" -o "Dir::Cache=$apt/cache" -o APT::Architecture=amd64 -o APT::Sandbox::User=root)
  apt-get "${options[@]}" -qq update
  for package in "$@"; do
    needs=$(apt-cache "${options[@]}" depends "$package" | awk '/Depends: linux-image-/ {print $2; exit}')
    (cd "$apt" && apt-get "${options[@]}" -qq download "${needs:-$package}")
  done
  for package in "$apt"/*.deb; do dpkg-deb -x "$package" "$folder"; done
  rm -rf "$folder/usr/share/doc"
}

make_initrd() { # make_initrd MODULES_OF_THE_KERNEL
  local module file root=$work/initrd
  cp "$(command -v busybox)" "$root/bin/busybox"
  ln -s busybox "$root/bin/sh"
  for module in "${vm_modules[@]}"; do
    file=$(find "$1" -name "$module.ko*" -print -quit)
    case $file in
      *.xz) xz -dc "$file" > "$root/modules/$module.ko" ;;
      *.ko) cp "$file" "$root/modules/" ;;
      *) fail "the kernel's module $module was not found, or is packed in a new way: '$file'" ;;
    esac
  done
  vm_init "${vm_modules[@]}" > "$root/init"
  chmod +x "$root/init"
  (cd "$root" && find . | cpio --quiet -o -H newc -R 0:0 | gzip -1) > "$work/vm/initrd"
}
