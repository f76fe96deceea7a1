#!/bin/bash
# The part of a job on one node: `node.sh WORK PYTHON...`, started by job.sh through srun. The first node starts Ray's
# head, the others join; each leaves up.NODE in WORK when it is part of the cluster, or failed.NODE, and ends its Ray by
# its process id, and nobody else's, as soon as there is WORK/stop.
#
# Other jobs may share the node: every port is one that was free, no file has a fixed name, and CPUs and GPUs are those
# of the allocation, where Ray by itself would take the whole machine.

work=$1 python=("${@:2}") name=$SLURMD_NODENAME ray='' tmp=''

say() { echo "sequor: $name: $*" >&2; }
# shellcheck disable=SC2010
seen() { ls "$work" | grep -qx "$1"; }  # reading the folder; a test for one file may be answered from NFS's cache
publish() { echo "${2:-}" >"$work/.$1.$name" && mv "$work/.$1.$name" "$work/$1"; }
leave() { if [ -n "$tmp" ]; then rm -rf "$tmp"; fi; exit "$1"; }
fail() { say "$*"; publish "failed.$name"; leave 1; }

# Temporary folders: short, since a socket's path ends at 107 bytes and Ray's share of it is 70. Their names hold the
# process that made them: where it is gone, a job was killed.
base=${SEQUOR_TMP:-/tmp}
for old in "$base"/sq.*.*.*; do
  IFS=. read -r _ _ pid _ <<<"${old##*/}"
  if [ -O "$old" ] && ! kill -0 "$pid" 2>/dev/null; then rm -rf "$old"; fi
done
tmp=$(mktemp -d "$base/sq.$SLURM_JOB_ID.$$.XXXX") || fail "$base: no temporary folder can be made there (SEQUOR_TMP)"
[ ${#tmp} -le 40 ] || fail "$base: too long a path for sockets; name a shorter folder in SEQUOR_TMP"

# The address by which Slurm itself reaches this node. Debian's /etc/hosts may call that 127.0.1.1: then Ray looks.
address=$(scontrol --oneliner show node "$name" | grep -o ' NodeAddr=[^ ]*')
address=${address#*=}
ip=$(getent ahosts "$address" | awk '{print $1; exit}')
if [[ $ip == 127.* && $address != "$ip" ]]; then ip=; fi

cpus=${SLURM_CPUS_ON_NODE:-1} gpus=0
if [ -n "${CUDA_VISIBLE_DEVICES:-}" ]; then gpus=$(tr ',' '\n' <<<"$CUDA_VISIBLE_DEVICES" | wc -l); fi
if [ "$cpus" -lt "$gpus" ]; then
  say "$cpus cores for $gpus GPUs: slow; ask for some more (sbatch --cpus-per-task)"
  cpus=$gpus  # an engine is placed where there is a core for it
fi

options=(--block --temp-dir="$tmp" --num-cpus="$cpus" --num-gpus="$gpus" --disable-usage-stats --log-color=false)
options+=(${ip:+--node-ip-address="$ip"} --object-store-memory=500000000)  # requests and answers are small
options+=(--min-worker-port=0 --max-worker-port=0 --dashboard-agent-listen-port=0)
if [ "$SLURM_PROCID" = 0 ]; then
  # The one port that Ray does not choose by itself; two heads on one machine would silently share it.
  while port=$((20000 + RANDOM % 12000)); (: <>"/dev/tcp/$address/$port") 2>/dev/null; do :; done
  options+=(--head --port=0 --ray-client-server-port="$port" --include-dashboard=false)
else
  until seen address; do
    if seen stop || seen 'failed\..*'; then leave 0; fi
    sleep 0.5
  done
  options+=(--address="$(<"$work/address")")
fi

: >"$tmp/start.log"
"${python[@]}" -m ray.scripts.scripts start "${options[@]}" >"$tmp/start.log" 2>&1 &
ray=$!
stopping=
trap 'stopping=1' TERM
there=$tmp/ray_current_cluster
up() {  # a head when its address is there, which Ray writes a moment after it has said that it started
  if [ "$SLURM_PROCID" = 0 ]; then [ -s "$there" ]; else grep -q 'Ray runtime started' "$tmp/start.log"; fi
}
until up; do
  if ! kill -0 "$ray" 2>/dev/null; then
    tail -n 5 "$tmp/start.log" >&2
    fail "Ray did not start"
  fi
  if [ -n "$stopping" ] || seen stop; then break; fi
  sleep 0.5
done
if [ "$SLURM_PROCID" = 0 ] && up; then publish address "$(<"$there")"; fi
publish "up.$name"

while [ -z "$stopping" ] && kill -0 "$ray" 2>/dev/null && ! seen stop; do
  sleep 1 &
  wait $!
done
if ! kill -0 "$ray" 2>/dev/null; then say "Ray has ended: $(tail -n 1 "$tmp/start.log")"; fi
kill -TERM "$ray" 2>/dev/null
for ((i = 0; i < 10; i++)); do kill -0 "$ray" 2>/dev/null && sleep 1; done
kill -KILL "$ray" 2>/dev/null
mkdir -p "$work/logs/$name" && timeout 20 cp -r "$tmp"/session_[0-9]*/logs/. "$tmp/start.log" "$work/logs/$name/"
leave 0
