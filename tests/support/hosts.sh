#!/usr/bin/env bash
# Several hosts on one machine: namespaces with a network, a name and a /dev/shm each, joined by a
# switch, so that what mpirun starts crosses real TCP links, which can be slow or cut.
#
#   hosts.sh N [--rate RATE] [--slots K] COMMAND...   runs COMMAND on the first of N hosts, h0, h1, ...; RATE as
#                                        tc takes it (100mbit); mpirun deals ranks over all hosts, K to each (1)
#   $HOSTS cut K, $HOSTS heal K          within COMMAND: the link of host hK goes down, comes up
#   $HOSTS on K COMMAND...               within COMMAND: runs it on host hK
#
# Ends with COMMAND, and ends whatever that has left. Exit code 77: this machine has no such
# namespaces. Needs iproute2; no root where the system allows namespaces to everybody.
set -euo pipefail
self=$(realpath "$0")

on_host() { # on_host K COMMAND...
  local host
  host=$(<"$HOSTS_DIR/h$1")
  shift
  # shellcheck disable=SC2016
  exec nsenter -t "$host" -n -u -m -- sh -c 'cd "$0" && exec "$@"' "$PWD" "$@"
}

switch_port() { nsenter -t "$(<"$HOSTS_DIR/switch")" -n ip link set "p$1" "$2"; }

add_host() { # add_host K [RATE]
  unshare -n -u -m sleep infinity &
  local host=$!
  until [ "$(readlink "/proc/$host/ns/mnt")" != "$(readlink /proc/self/ns/mnt)" ]; do sleep 0.01; done
  echo "$host" >"$HOSTS_DIR/h$1"
  ip link add e0 netns "$host" type veth peer name "p$1"
  ip link set "p$1" master switch up
  nsenter -t "$host" -n -u -m -- sh -ec "hostname h$1; mount -t tmpfs -o size=2g shm /dev/shm
    ip addr add 10.98.0.$(($1 + 1))/24 dev e0; ip link set e0 up; ip link set lo up"
  [ -z "${2:-}" ] ||
    nsenter -t "$host" -n tc qdisc add dev e0 root tbf rate "$2" burst 256kb latency 100ms
}

case ${1:-} in
  on) shift && on_host "$@" ;;
  cut) switch_port "$2" down ;;
  heal) switch_port "$2" up ;;
  agent) # of mpirun: agent HOST COMMAND...
    host=${2#h}
    shift 2
    on_host "$host" sh -c "$*" ;;
  inside) # inside COUNT RATE SLOTS COMMAND...: in namespaces that end with this process
    count=$2 rate=$3 slots=$4
    shift 4
    HOSTS_DIR=$(mktemp -d) HOSTS=$self
    trap 'rm -rf "$HOSTS_DIR"' EXIT
    export HOSTS_DIR HOSTS
    echo $$ >"$HOSTS_DIR/switch"
    ip link set lo up
    ip link add switch type bridge || exit 77
    ip link set switch up
    for ((k = 0; k < count; k++)); do
      add_host "$k" "$rate" || exit 77
      echo "h$k slots=$slots" >>"$HOSTS_DIR/hostfile"
    done
    export OMPI_MCA_orte_default_hostfile=$HOSTS_DIR/hostfile OMPI_MCA_plm_rsh_agent="$self agent"
    # Process numbers and names of hosts are those of other runs of this script too.
    export OMPI_MCA_orte_tmpdir_base=$HOSTS_DIR
    export OMPI_MCA_btl_tcp_if_include=e0 OMPI_MCA_oob_tcp_if_include=e0
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    export OMPI_MCA_btl_vader_single_copy_mechanism=none OMPI_MCA_hwloc_base_binding_policy=none
    code=0
    (on_host 0 "$@") || code=$?
    exit "$code" ;;
  [1-9]*)
    count=$1 rate= slots=1
    shift
    while true; do
      case ${1:-} in
        --rate) rate=$2 && shift 2 ;;
        --slots) slots=$2 && shift 2 ;;
        *) break ;;
      esac
    done
    [ $# -gt 0 ] || { sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0" >&2 && exit 2; }
    command -v ip >/dev/null || exit 77
    unshare -Urnmpf --mount-proc --kill-child true 2>/dev/null || exit 77
    exec unshare -Urnmpf --mount-proc --kill-child "$self" inside "$count" "$rate" "$slots" "$@" ;;
  *) sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0" >&2 && exit 2 ;;
esac
