#!/bin/sh
# Docker's container, roughly: `container.sh ROOT PYTHON-PREFIX write|read-only UID:GID COMMAND...` runs COMMAND with ROOT
# as its root, in the mount namespace that the caller has made (`unshare --mount`). /usr is this machine's, read-only, and
# so is what pip's configuration names; /usr/local, /etc and the rest are ROOT's own.
set -eu
root=$1 prefix=$2 access=$3 user=$4
shift 4
mount --bind "$root" "$root"
for folder in /usr "$prefix" /opt/pypi /opt/pypi-more /opt/wheels; do
    [ -d "$folder" ] || continue
    mkdir -p "$root$folder"
    mount --bind -o ro "$folder" "$root$folder"
done
mkdir -p "$root/.local" "$root/proc" "$root/dev" "$root/tmp"
mount --bind "$root/.local" "$root/usr/local"
mount --bind /dev "$root/dev"
mount -t proc proc "$root/proc"
if [ "$access" = read-only ]; then
    ip link set lo up # the network is its own, too
    mount -o remount,bind,ro "$root/usr/local"
    mount -o remount,bind,ro "$root"
fi
mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
if [ "$access" = write ]; then
    exec chroot "$root" "$@"
fi
exec chroot "$root" setpriv --reuid="${user%:*}" --regid="${user#*:}" --clear-groups --no-new-privs --bounding-set=-all "$@"
