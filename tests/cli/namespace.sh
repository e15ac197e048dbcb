set -e
mount --make-rprivate /
mount --bind "$FOLDER" "$FOLDER"
for path in $WRITABLE; do mount --bind "$path" "$path"; done
mount -t tmpfs private /var/tmp
mount -o remount,bind,ro "$FOLDER"
mount -o remount,bind,ro /
! touch "$FOLDER/denied" /denied 2>/dev/null
exec env -i TMPDIR=/var/tmp "$@"
