#!/bin/sh
# A machine for what a page types: this one's files under a layer that is thrown away, with users, hosts, processes and a
# network (loopback alone) of its own, and systemd as its first process. Its files are gone with that process.
#   machine.sh GROUP HOST ADDRESS [HOST ADDRESS …]     GROUP: a control group that is not there yet
set -e
if [ "$1" != within ]; then
  mkdir "$1"
  echo $$ >"$1/cgroup.procs"
  shift
  exec unshare --mount --pid --net --cgroup --ipc --uts --fork --kill-child sh "$0" within "$@"
fi
shift
mount --make-rprivate /
mount -t tmpfs machine /mnt
mkdir /mnt/upper /mnt/work /mnt/root
mount -t overlay machine -o lowerdir=/,upperdir=/mnt/upper,workdir=/mnt/work /mnt/root
cd /mnt/root
mount -t proc proc proc
mount --bind proc/sys proc/sys
mount -o remount,bind,ro proc/sys
mount -t sysfs -o ro sysfs sys
mount -t cgroup2 cgroup sys/fs/cgroup
mount -t tmpfs run run
mount -t tmpfs tmp tmp
mount -t tmpfs dev dev
for node in null zero full random urandom tty; do
  touch dev/$node
  mount --bind /dev/$node dev/$node
done
ln -s /proc/self/fd dev/fd
ln -s /proc/self/fd/0 dev/stdin
mkdir dev/pts dev/shm
mount -t devpts -o newinstance,ptmxmode=0666 devpts dev/pts
ln -s pts/ptmx dev/ptmx
mount -t tmpfs shm dev/shm
chmod a+rx root  # a developer's Python may lie there
while [ $# -gt 0 ]; do
  echo "$2 $1" >>etc/hosts
  shift 2
done
if ! command -v sudo >/dev/null; then  # as far as a page needs it: sudo -u USER COMMAND
  printf '#!/bin/sh\nuser=$2\nshift 2\nSUDO_USER=$(id -un) exec runuser -u "$user" -- "$@"\n' >usr/local/bin/sudo
  chmod 755 usr/local/bin/sudo
fi
cp "$(dirname "$0")"/kubectl.sh usr/local/bin/kubectl
chmod 755 usr/local/bin/kubectl
rm -f etc/systemd/system/timers.target.wants/* # nothing of this machine's own is due there
mount --make-rshared .                         # as systemd finds it where it boots: what it mounts for a unit is seen there
ip link set lo up
exec env -i PATH="$PATH" container=machine chroot . /lib/systemd/systemd --unit=basic.target
