#!/bin/busybox sh
# The guest's first and only process: makes rxe0 on eth0, and then runs what comes through a virtio
# port, a line of shell at a time. Each is answered with what it printed and a line "@@END STATUS".
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
/bin/busybox --install -s /bin
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
mount -t proc none /proc
mount -t sysfs none /sys
mount -t devtmpfs none /dev
mkdir -p /dev/shm /tmp/jobs
mount -t tmpfs none /dev/shm
. /load-modules

argument() { sed "s/.*$1=\([^ ]*\).*/\1/" /proc/cmdline; }
ip link set lo up
ip link set eth0 mtu "$(argument guest_mtu)"
ip addr add "$(argument guest_ipv4)" dev eth0
echo 0 >/proc/sys/net/ipv6/conf/eth0/accept_dad
ip addr add "$(argument guest_ipv6)" dev eth0
ip link set eth0 up
rdma link add rxe0 type rxe netdev eth0

until [ -c /dev/vport*p1 ]; do sleep 0.1; done
port=$(echo /dev/vport*p1)
exec <>"$port" >&0
echo "@@END 0"
# Until the driver has heard that the other end is there, there seems to be an end of the file.
while sleep 0.1; do
  while read -r line; do
    eval "$line" 2>&1
    echo "@@END $?"
  done
done
