#!/usr/bin/env bash
# Builds a disk image for the guests of the tier `vm`: tests/vm/image.sh FOLDER tiny|full
#
#   tiny   Debian's cloud kernel, busybox, dropbear, the QEMU guest agent, and a shell script in the
#          place of cloud-init. It takes the user-data that Proxmox VE writes, and little more.
#   full   Debian with systemd, cloud-init, OpenSSH, the QEMU guest agent, sudo and Python.
#
# The result is FOLDER/KIND.qcow2. Each image boots by itself from a BIOS and from UEFI: a partition
# table, GRUB before the first sector of a partition and in an EFI system partition, and an ext4
# named `root` behind that. So whatever is cloned or built from it is a disk of its own, too.
#
# An image is built again when this script or Debian's suite changes (FOLDER/KIND.made).
# It needs root on a Debian with apt, and downloads nothing but packages of apt's sources. It needs
# no loop device and no mount: mke2fs puts the files into the file system, dd puts GRUB before it.
set -euo pipefail
export LC_ALL=C DEBIAN_FRONTEND=noninteractive
[ $# = 2 ] || { sed -n '2,/^set /s/^# \{0,1\}//p' "$0" >&2; exit 2; }
folder=$1 kind=$2
case $kind in tiny | full) ;; *) echo "unknown image \`$kind\`: choose tiny or full" >&2; exit 2 ;; esac
# shellcheck disable=SC1091 # the machine's own
suite=$(. /etc/os-release && echo "$VERSION_CODENAME")
made="$(sha256sum <"$0" | cut -c1-16) $suite"
mkdir -p "$folder"
if [ -s "$folder/$kind.qcow2" ] && [ "$(cat "$folder/$kind.made" 2>/dev/null)" = "$made" ]; then exit 0; fi

sources=/etc/apt/sources.list.d/debian.sources
[ -s "$sources" ] || sources=/etc/apt/sources.list
work=$(mktemp -d "${TMPDIR:-/var/tmp}/drover-image.XXXXXX")
trap 'rm -rf --one-file-system "$work"' EXIT
root=$work/root
# Where Debian's packages are unpacked; the tiny image takes only some of their files.
packages=$work/packages

# bootstrap VARIANT FOLDER PACKAGES: Debian packages in a folder, without their documentation.
bootstrap() {
  local place option=()
  for place in man doc info locale i18n; do option+=(--dpkgopt="path-exclude=/usr/share/$place/*"); done
  mmdebstrap --quiet --mode=root --format=directory --variant="$1" "${option[@]}" \
    --aptopt='APT::Install-Recommends "false"' --include="$3" "$suite" "$2" "$sources"
}

# write PATH [MODE]: a file of the image from standard input.
write() {
  mkdir -p "$root/$(dirname "$1")"
  cat >"$root/$1"
  chmod "${2:-644}" "$root/$1"
}

# boot_files FROM: the kernel of FROM, and an initrd that finds the root file system by its name.
boot_files() {
  local from=$1 version initrd=$work/initrd module file
  version=$(basename "$from"/lib/modules/*)
  mkdir -p "$root/boot" "$initrd"/{bin,dev,proc,sys,root,modules}
  cp "$from/boot/vmlinuz-$version" "$root/boot/vmlinuz"
  cp "$from/bin/busybox" "$initrd/bin/busybox"
  depmod -b "$from" "$version"
  # Drives of a Proxmox machine: VirtIO, and IDE for CD-ROMs.
  for module in virtio_pci virtio_scsi virtio_blk sd_mod ata_piix sr_mod isofs \
    virtio_net virtio_console virtio_rng button evdev; do
    modprobe -d "$from" -S "$version" --show-depends "$module" 2>/dev/null | awk '$1 == "insmod" {print $2}'
  done | awk '!seen[$0]++' | while read -r file; do
    cp "$file" "$initrd/modules/"
    echo "/modules/${file##*/}" >>"$initrd/modules.list"
  done
  cat >"$initrd/init" <<'INIT'
#!/bin/busybox sh
b=/bin/busybox
$b mount -t devtmpfs dev /dev; $b mount -t proc proc /proc; $b mount -t sysfs sys /sys
while read -r module; do $b insmod "$module"; done </modules.list 2>/dev/null
# The name of an ext4 stands 120 bytes behind the start of its superblock.
named_root() {
  for part in /dev/sd?1 /dev/vd?1; do
    [ -b "$part" ] && [ "$($b dd if="$part" bs=1 skip=1144 count=4 2>/dev/null)" = root ] && return
  done
  return 1
}
turns=0
until named_root || [ $turns -ge 1000 ]; do turns=$((turns + 1)); $b usleep 10000; done
$b mount -t ext4 -o rw "$part" /root || exec $b sh
$b umount /proc; $b umount /sys; $b mount -o move /dev /root/dev
exec $b switch_root /root /sbin/init
INIT
  chmod 755 "$initrd/init"
  (cd "$initrd" && find . | sort | cpio --quiet -o -H newc | gzip -1) >"$root/boot/initrd"
}

# pack SIZE: the folder as a disk that boots.
pack() {
  local disk=$work/disk grub=$work/grub esp=$work/esp start=2048 length=8192 root_at
  root_at=$((start + length))
  truncate -s "$1" "$disk"
  # The root is the first partition and the last on the disk, so that it can grow.
  printf 'label: dos\n1: start=%s, type=L, bootable\n2: start=%s, size=%s, type=U\n' \
    "$root_at" "$start" "$length" | sfdisk --quiet "$disk"
  # GRUB reads no file system whose checksums have a seed of their own.
  mke2fs -q -F -t ext4 -L root -m 0 -O ^metadata_csum_seed -E "offset=$((root_at * 512)),root_owner=0:0" \
    -d "$root" "$disk" "$((($(stat -c %s "$disk") - root_at * 512) / 1024))k"
  # On a busy computer the kernel would take an emulated timer for a broken one.
  cat >"$grub.cfg" <<'CFG'
search --no-floppy --label root --set root
linux /boot/vmlinuz rw quiet console=ttyS0 net.ifnames=0 no_timer_check systemd.show_status=0
initrd /boot/initrd
boot
CFG
  grub-mkimage -O i386-pc -p /boot -c "$grub.cfg" -o "$grub.img" biosdisk part_msdos ext2 search search_label linux
  # The first sector keeps its partition table; GRUB's own code looks for the rest in the next one.
  dd if=/usr/lib/grub/i386-pc/boot.img of="$disk" bs=1 count=440 conv=notrunc status=none
  dd if="$grub.img" of="$disk" bs=512 seek=1 conv=notrunc status=none
  # The path that firmware without an entry of its own looks for.
  grub-mkimage -O x86_64-efi -p /boot -c "$grub.cfg" -o "$grub.efi" part_msdos ext2 search search_label linux
  truncate -s $((length * 512)) "$esp"
  mkfs.vfat -n EFI "$esp" >/dev/null
  mmd -i "$esp" ::/EFI ::/EFI/BOOT
  mcopy -i "$esp" "$grub.efi" ::/EFI/BOOT/BOOTX64.EFI
  dd if="$esp" of="$disk" bs=512 seek=$start conv=notrunc status=none
  qemu-img convert -c -O qcow2 -o compression_type=zstd "$disk" "$folder/$kind.new"
  mv "$folder/$kind.new" "$folder/$kind.qcow2"
  echo "$made" >"$folder/$kind.made"
}

full() {
  local name
  bootstrap minbase "$root" linux-image-cloud-amd64,systemd-sysv,systemd-resolved,udev,dbus,kmod,iproute2,procps,cloud-init,cloud-guest-utils,e2fsprogs,openssh-server,openssh-sftp-server,qemu-guest-agent,sudo,python3,curl,ca-certificates,busybox-static
  boot_files "$root"
  find "$root/boot" -mindepth 1 ! -name vmlinuz ! -name initrd -delete
  echo localhost | write etc/hostname
  # Each clone makes its own.
  : | write etc/machine-id
  rm -f "$root"/etc/ssh/ssh_host_*
  echo 'LABEL=root / ext4 rw,noatime 0 1' | write etc/fstab
  # Proxmox VE asks for an upgrade of all packages unless `ciupgrade` is 0. A guest of the tests has
  # no mirror, so that the module is left out.
  write etc/cloud/cloud.cfg.d/90-drover-tests.cfg <<'CFG'
datasource_list: [NoCloud, ConfigDrive]
ssh_genkeytypes: [ed25519]
system_info: {network: {renderers: [networkd]}}
cloud_init_modules: [seed_random, bootcmd, write-files, growpart, resizefs, set_hostname, update_hostname, update_etc_hosts, users-groups, ssh]
cloud_config_modules: [set-passwords, timezone, runcmd]
cloud_final_modules: [write-files-deferred, scripts-per-once, scripts-per-boot, scripts-per-instance, scripts-user, final-message, power-state-change]
CFG
  # Without cloud-init's network, and without seconds for the detection of duplicate addresses.
  printf '[Match]\nName=e*\n[Network]\nDHCP=ipv4\n' | write etc/systemd/network/90-dhcp.network
  printf 'net.ipv6.conf.all.accept_dad=0\nnet.ipv6.conf.default.accept_dad=0\n' | write etc/sysctl.d/10-no-dad.conf
  chroot "$root" systemctl -q enable systemd-networkd systemd-networkd-wait-online systemd-resolved ssh
  for name in apt-daily.timer apt-daily-upgrade.timer e2scrub_all.timer e2scrub_reap.service fstrim.timer \
    dpkg-db-backup.timer getty@tty1.service serial-getty@ttyS0.service systemd-pstore.service; do
    chroot "$root" systemctl -q mask "$name"
  done
  rm -rf "$root"/var/cache/* "$root"/var/lib/apt/lists/* "$root"/var/log/* \
    "$root"/usr/lib/modules/*/kernel/{sound,drivers/{gpu,infiniband,media,usb,nvme,mtd}}
  mkdir -p "$root"/var/cache/apt/archives/partial "$root"/var/lib/apt/lists/partial
  ln -sf ../run/systemd/resolve/stub-resolv.conf "$root/etc/resolv.conf"
  pack 2G
}

tiny() {
  local program file
  bootstrap extract "$packages" linux-image-cloud-amd64,busybox-static,dropbear-bin,openssh-sftp-server,qemu-guest-agent
  mkdir -p "$root"/{bin,sbin,lib,usr/lib,dev,proc,sys,run,tmp,root,home,mnt,var/log,var/lib/cloud,etc/dropbear,etc/ssh}
  ln -s lib "$root/lib64"; ln -s ../bin "$root/usr/bin"; ln -s ../sbin "$root/usr/sbin"
  chmod 1777 "$root/tmp"; chmod 700 "$root/root"
  cp "$packages/bin/busybox" "$root/bin/busybox"
  chroot "$root" /bin/busybox --install -s /bin
  ln -s ../bin/busybox "$root/sbin/init"
  for program in usr/sbin/dropbear usr/sbin/qemu-ga usr/bin/dropbearkey usr/lib/openssh/sftp-server; do
    mkdir -p "$root/$(dirname "$program")"
    cp "$packages/$program" "$root/$program"
    chroot "$packages" /lib64/ld-linux-x86-64.so.2 --list "/$program" | awk '$3 ~ /^\// {print $3}'
  done | sort -u | while read -r file; do cp -L "$packages$file" "$root/lib/"; done
  for file in lib64/ld-linux-x86-64.so.2 lib/x86_64-linux-gnu/{libnss_files.so.2,libgcc_s.so.1}; do
    cp -L "$packages/$file" "$root/lib/"
  done
  boot_files "$packages"

  echo 'root:x:0:0:root:/root:/bin/sh' | write etc/passwd
  echo 'root:*:19000:0:99999:7:::' | write etc/shadow 600
  echo 'root:x:0:' | write etc/group
  echo /bin/sh | write etc/shells
  printf 'passwd: files\ngroup: files\nshadow: files\nhosts: files dns\n' | write etc/nsswitch.conf
  printf 'ID=tiny\nNAME=tiny\nVERSION_ID=1\nPRETTY_NAME="drover tiny guest"\n' | write etc/os-release
  write etc/inittab <<'TAB'
::sysinit:/etc/rc
::respawn:/etc/agent
::respawn:/sbin/dropbear -F -R -E
::ctrlaltdel:/bin/reboot
::shutdown:/bin/umount -a -r
TAB
  write etc/rc 755 <<'RC'
#!/bin/sh
mount -t proc proc /proc; mount -t sysfs sys /sys
mkdir -p /dev/pts /dev/shm; mount -t devpts devpts /dev/pts; mount -t tmpfs -o mode=755 run /run
exec >/var/log/boot 2>&1
ip link set lo up
/sbin/cloud network
# drover reads the public key where OpenSSH keeps it, through the guest agent.
key=/etc/dropbear/dropbear_ed25519_host_key
[ -s $key ] || dropbearkey -t ed25519 -f $key
dropbearkey -y -f $key | grep ^ssh-ed25519 >/etc/ssh/ssh_host_ed25519_key.pub
acpid -d -f </dev/null >/dev/null 2>&1 &
/sbin/cloud commands </dev/null >/var/log/cloud-init-output.log 2>&1 &
RC
  # Nothing here names the agent's port, as udev does.
  write etc/agent 755 <<'AGENT'
#!/bin/sh
for port in /sys/class/virtio-ports/*; do
  [ "$(cat "$port/name" 2>/dev/null)" = org.qemu.guest_agent.0 ] &&
    exec /sbin/qemu-ga -m virtio-serial -p "/dev/${port##*/}" -t /run -f /run/qemu-ga.pid
done
sleep 5
AGENT
  write etc/dhcp 755 <<'DHCP'
#!/bin/sh
case $1 in
bound | renew)
  ip addr flush dev "$interface"
  ip addr add "$ip/$mask" dev "$interface"
  [ -z "$router" ] || ip route replace default via "${router%% *}"
  for server in $dns; do echo "nameserver $server"; done >/etc/resolv.conf
  ;;
esac
DHCP
  # What the guest agent runs to shut down, and what the ACPI button does.
  write sbin/shutdown 755 <<'DOWN'
#!/bin/sh
case " $* " in *" -r "*) exec reboot ;; *) exec poweroff ;; esac
DOWN
  printf '#!/bin/sh\nexec poweroff\n' | write etc/acpi/PWRF/00000080 755
  # The user is root by another name.
  write bin/sudo 755 <<'SUDO'
#!/bin/sh
while :; do case $1 in -u) shift 2 ;; -*) shift ;; *) exec "$@" ;; esac; done
SUDO
  write bin/cloud-init 755 <<'STATUS'
#!/bin/sh
[ "$1" = status ] || { echo "cloud-init: only \`status\` is here" >&2; exit 2; }
case " $* " in *" --wait "*) until [ -f /run/cloud-init-done ]; do usleep 50000; done ;; esac
if [ -f /run/cloud-init-done ]; then echo "status: done"; else echo "status: running"; fi
STATUS
  # The place of cloud-init. It reads a drive named `cidata`: host name, user, SSH keys and commands
  # of user-data (lists with one text a line), the first static address of network-config.
  write sbin/cloud 755 <<'CLOUD'
#!/bin/sh
user=/var/lib/cloud/user-data net=/var/lib/cloud/network-config
clean() { sed 's/^["'\'']//; s/["'\'']$//'; }
value() { sed -n "s/^ *$1: *//p" "$2" 2>/dev/null | head -n 1 | clean; }
list() { awk -v key="$1:" '$1 == key && /^[^ -]/ {on = 1; next} /^[^ -]/ {on = 0} on && /^ *- / {sub(/^ *- /, ""); print}' "$user" | clean; }
network() {
  for drive in /dev/sr? /dev/sd[b-z] /dev/vd[b-z]; do
    # The name of an ISO image stands at byte 32808.
    name=$(dd if="$drive" bs=1 skip=32808 count=6 2>/dev/null | tr A-Z a-z)
    if [ "$name" = cidata ] && mount -t iso9660 -o ro "$drive" /mnt 2>/dev/null; then
      cp /mnt/* /var/lib/cloud/; umount /mnt; break
    fi
  done
  ip link set eth0 up
  if grep -q 'type: *static' $net 2>/dev/null; then
    ip addr add "$(value address $net)" dev eth0
    ip route add default via "$(value gateway $net)"
  else
    udhcpc -i eth0 -s /etc/dhcp -t 5 -T 1 -A 1 -b -S >/dev/null 2>&1 &
  fi
  [ -f $user ] || return
  host=$(value hostname $user); hostname "${host:-tiny}"
  echo "127.0.0.1 localhost $host" >/etc/hosts
  name=$(value user $user); home=/home/${name:=root}
  grep -q "^$name:" /etc/passwd || {
    echo "$name:x:0:0::$home:/bin/sh" >>/etc/passwd; echo "$name:*:19000:0:99999:7:::" >>/etc/shadow; }
  home=$(sed -n "s/^$name:[^/]*\(\/[^:]*\):.*/\1/p" /etc/passwd)
  mkdir -p "$home/.ssh"; chmod 700 "$home" "$home/.ssh"
  list ssh_authorized_keys >"$home/.ssh/authorized_keys"; chmod 600 "$home/.ssh/authorized_keys"
}
commands() {
  instance=$(value instance-id /var/lib/cloud/meta-data)
  if [ "$(cat /var/lib/cloud/instance 2>/dev/null)" != "$instance" ]; then
    list runcmd >/run/commands; sh /run/commands
    echo "$instance" >/var/lib/cloud/instance
  fi
  : >/run/cloud-init-done
}
"$1"
CLOUD
  pack 128M
}

"$kind"
