#!/usr/bin/env bash
# two_hosts.sh COMMAND: runs a command under bash in two network namespaces at once, joined by a virtual cable, as hosts "node0" and
# "node1", each with its own host name, /etc/hosts, processes, IPC and /dev/shm, as containers have. The command finds NODE (0 or 1) and MASTER, the address of node0.
#
# With SHAPED_LINK set to "PROGRAM GBIT_PER_S MILLISECONDS LOSS", the cable is benchmarks/shaped_link.cpp, which slows it down.
#
# Everything lives in namespaces of its own, with names that only this process sees, and vanishes with it, whatever way it ends.
set -euo pipefail

if [ -z "${TWO_HOSTS_INSIDE:-}" ]; then
  user=()
  [ "$(id -u)" = 0 ] || user=(--user --map-root-user)
  TWO_HOSTS_INSIDE=1 exec unshare "${user[@]}" --mount --net --pid --fork --kill-child --mount-proc "$0" "$@"
fi
unset TWO_HOSTS_INSIDE

mount -t tmpfs tmpfs /run  # where ip keeps the names of network namespaces
for node in 0 1; do
  ip netns add "node$node"
  ip -n "node$node" link set lo up
done
if [ -n "${SHAPED_LINK:-}" ]; then
  $SHAPED_LINK /run/netns/node0 /run/netns/node1 &
  until ip -n node1 link show cable1 >/dev/null 2>&1; do kill -0 $!; sleep 0.02; done
else
  ip link add cable0 netns node0 type veth peer name cable1 netns node1
fi
for node in 0 1; do
  ip -n "node$node" address add "10.77.0.$((node + 1))/24" dev "cable$node"
  ip -n "node$node" link set "cable$node" up
done
for node in 0 1; do
  until ip -n "node$node" -brief link show "cable$node" | grep -q "LOWER_UP"; do sleep 0.02; done
done

as_host() {
  export NODE=$1 MASTER=10.77.0.1
  shift
  nsenter --net="/run/netns/node$NODE" unshare --uts --ipc --pid --mount --fork --kill-child --mount-proc bash -c '
    mount -t tmpfs tmpfs /dev/shm
    hostname "node$NODE"
    printf "127.0.0.1 localhost\n10.77.0.1 node0\n10.77.0.2 node1\n" > "/run/hosts$NODE"
    mount --bind "/run/hosts$NODE" /etc/hosts
    exec bash -c "$0"' "$@"
}
as_host 0 "$1" &
first=$!
as_host 1 "$1" &
second=$!
status=0
wait "$first" || status=$?
wait "$second" || status=$?
exit "$status"
