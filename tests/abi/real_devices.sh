#!/bin/sh
# A host that has real RDMA devices, as far as files go: run in a mount namespace of its own, by
#   unshare -rm real_devices.sh ABI_KSTUB
# Prints what a program with the stand-in sees of the real ones and the node's, side by side.
# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
set -eu
program=$1
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

mkdir -p "$scratch/class/infiniband" "$scratch/class/infiniband_verbs" "$scratch/class/net" \
  "$scratch/class/real/mlx5_0" "$scratch/class/real/uverbs7" "$scratch/dev/infiniband"
echo mlx5 >"$scratch/class/real/mlx5_0/hca_type"
echo mlx5_0 >"$scratch/class/real/uverbs7/ibdev"
echo 6 >"$scratch/class/infiniband_verbs/abi_version"
ln -s ../real/mlx5_0 "$scratch/class/infiniband/mlx5_0"
ln -s ../real/uverbs7 "$scratch/class/infiniband_verbs/uverbs7"
mkfifo "$scratch/dev/infiniband/uverbs7" "$scratch/dev/infiniband/rdma_cm"
: >"$scratch/dev/null"
mount --bind "$scratch/class" /sys/class
mount --bind "$scratch/dev" /dev

mkfifo "$scratch/hold"
"$program" --serve <"$scratch/hold" >"$scratch/node" &
exec 9>"$scratch/hold"
while ! [ -s "$scratch/node" ]; do sleep 0.05; done
look() { env LD_PRELOAD="$URDMA_KSTUB" URDMA_NODE_DIR="$(cat "$scratch/node")" "$@"; }
look ls -1 /sys/class/infiniband /sys/class/infiniband_verbs /dev/infiniband
look cat /sys/class/infiniband/mlx5_0/hca_type /sys/class/infiniband_verbs/uverbs7/ibdev
look stat -c '%n: %F' /dev/infiniband/uverbs0 /dev/infiniband/uverbs7
look realpath /sys/class/infiniband/mlx5_0 /sys/class/infiniband/urdma0
exec 9>&-
wait
