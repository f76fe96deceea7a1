#!/bin/bash
#SBATCH --job-name=sequor
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=1
#SBATCH --signal=B:USR1@120
#SBATCH --requeue
#SBATCH --no-kill
#SBATCH --open-mode=append
#
# A verb of Sequor under Slurm, on one node or several. From the checkout, which all nodes must see, as the run's folder:
#
#   sbatch -p gpu -t 12:00:00 -N 2 --gpus-per-node=8 -c 64 slurm/job.sh run my.yaml --out /shared/runs/mine
#   sbatch -p gpu -t 12:00:00 --gpus-per-node=8 -c 64 --array=1-4 slurm/job.sh models.txt run my.yaml
#
# Before `slurm/job.sh` stand options of sbatch, behind it words of `sequor`. Task N of an array adds the words of line N
# of the file named first, such as `--model Qwen/Qwen3-4B-Instruct-2507 --out /shared/runs/qwen3-4b`.
#
# 1. A step with one node.sh a node makes a Ray cluster of the allocation, with a token of its own; the driver runs beside
#    it, on the first node. They meet in a hidden folder beside the run's, which is gone when the job has ended.
# 2. Two minutes before the time limit (--signal) the driver is told to stop; it saves and exits with 75, and the job goes
#    back into the queue, unless the whole allotted time has brought no record. scancel ends everything at once; what is
#    on disk stays there. Whatever has ended a job, the same line continues its run.
# 3. A node lost costs its engines; Ray and the scheduler go on with the others (--no-kill, here and at srun).
# 4. The job's exit code is the driver's: 0 complete, 2 bad input, 3 incomplete, 4 engine or cluster failed, 75 stopped.
#
# Environment, passed on by sbatch:
#   SEQUOR_PYTHON   the interpreter, on all nodes; left out, .venv/bin/python here if there is one, else python3.
#                   Several words are a container: SEQUOR_PYTHON="apptainer exec --nv sequor.sif python3"
#   SEQUOR_TMP      a folder on each node's own disk, for Ray's sockets and logs; short. Left out, /tmp
#   SEQUOR_WAIT_S   how long to wait for all nodes; left out, 300

say() { echo "sequor: $*" >&2; }
die() { say "${@:2}"; exit "$1"; }
pause() { sleep "$1" & wait $!; }  # bash runs traps around `wait` alone
alive() { kill -0 "$1" 2>/dev/null; }

[ -n "${SLURM_JOB_ID:-}" ] || die 2 "slurm/job.sh is a batch script: sbatch OPTIONS slurm/job.sh run CONFIG --out FOLDER"
home=$SLURM_SUBMIT_DIR
[ -r "$home/slurm/node.sh" ] || die 2 "$home/slurm/node.sh: not there; call sbatch in Sequor's checkout"

words=("$@")
if [ -n "${SLURM_ARRAY_TASK_ID:-}" ]; then
  list=${words[0]:-}
  [ -r "$list" ] || die 2 "${list:-job array}: no such file; line N of it holds the words of task N"
  line=$(sed -n "${SLURM_ARRAY_TASK_ID}{s/\r\$//;p}" "$list")  # a list from Windows ends its lines with \r\n
  [ -n "$line" ] || die 2 "$list: line $SLURM_ARRAY_TASK_ID, of task $SLURM_ARRAY_TASK_ID, is empty or not there"
  mapfile -d '' -t more < <(xargs printf '%s\0' <<<"$line")  # xargs knows quotes, and expands nothing
  words=("${words[@]:1}" "${more[@]}")
fi

out=
for ((i = 0; i < ${#words[@]}; i++)); do
  case ${words[i]} in
    -o | --out) out=${words[i + 1]:-} ;;
    --out=*) out=${words[i]#--out=} ;;
  esac
done
[ -n "$out" ] || die 2 "name the run's folder, on storage that all nodes share: --out FOLDER"
out=$(realpath -m -- "$out")

if [ -n "${SEQUOR_PYTHON:-}" ]; then read -ra python <<<"$SEQUOR_PYTHON"
elif [ -x "$home/.venv/bin/python" ]; then python=("$home/.venv/bin/python")
else python=(python3); fi

# --- the folder where driver and nodes meet; what killed jobs left beside this run goes
attempt=$SLURM_JOB_ID.${SLURM_RESTART_COUNT:-0}
beside=$(dirname "$out")/.$(basename "$out").slurm-
work=$beside$attempt

keep_logs() {  # FOLDER: what its nodes' Ray has logged goes to the run, if there is one
  [ -d "$1/logs" ] && [ -f "$out/run.json" ] || return 0
  mkdir -p "$out/logs/ray" && cp -r "$1/logs" "$out/logs/ray/${1#"$beside"}"
}

if mine=$(squeue --noheader --me --format=%A); then
  for left in "$beside"*; do
    job=${left#"$beside"}; job=${job%.*}
    if [ -d "$left" ] && { [ "$job" = "$SLURM_JOB_ID" ] || ! grep -qx "$job" <<<"$mine"; }; then
      keep_logs "$left"; rm -rf "$left"
    fi
  done
fi
mkdir -p "$(dirname "$out")" || die 2 "$out: cannot be made"
(umask 077; mkdir "$work" && od -An -N32 -tx1 /dev/urandom | tr -d ' \n' >"$work/token") || die 2 "$work: cannot be made"

# --- Ray's own settings; sbatch has brought the environment of the shell, with whatever cluster that was at work with
unset RAY_ADDRESS RAY_AUTH_TOKEN
export RAY_AUTH_MODE=token RAY_AUTH_TOKEN_PATH=$work/token  # a Ray head without one obeys the whole network
export RAY_USAGE_STATS_ENABLED=0 RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO=0 RAY_worker_niceness=0
export RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S=5              # else up to 30 s
export SLURM_CPU_BIND=none                                  # the node's task is all of the job's share of the node
export PYTHONUNBUFFERED=1 PYTHONPATH=$home${PYTHONPATH:+:$PYTHONPATH}

nodes=$SLURM_JOB_NUM_NODES
step='' driver='' timed='' ended=''
stop_driver() { if [ -n "$driver" ]; then kill -TERM "$driver" 2>/dev/null; fi; }
trap 'timed=1; stop_driver' USR1
trap 'ended=1; stop_driver' TERM
on_all() { srun --nodes="$nodes" --ntasks="$nodes" --ntasks-per-node=1 --no-kill --kill-on-bad-exit=0 "$@"; }

clean_up() {  # end the step, keep its logs, leave nothing
  if [ -n "$step" ]; then
    touch "$work/stop"
    for ((i = 0; i < 25; i++)); do alive "$step" && pause 1; done
    alive "$step" && kill -TERM "$step"
  fi
  keep_logs "$work"
  rm -rf "$work"
}
finish() { clean_up; exit "$1"; }

records() { cat "$out/turns.jsonl" "$out/judgements.jsonl" "$out/replies.jsonl" 2>/dev/null | wc -c; }

# --- the cluster
# shellcheck disable=SC2016
on_all bash -c 'for f; do [ -r "$f" ] || { echo "sequor: $SLURMD_NODENAME does not see $f" >&2; exit 1; }; done' \
  - "$work/token" "$home/slurm/node.sh" ||
  { say "the checkout ($home) and the run's folder ($out) must lie on storage that all nodes share"; finish 2; }

on_all bash "$home/slurm/node.sh" "$work" "${python[@]}" &
step=$!
limit=$((SECONDS + ${SEQUOR_WAIT_S:-300}))
while there=$(ls "$work"); [ "$(grep -c '^up\.' <<<"$there")" -lt "$nodes" ]; do
  [ -z "$timed$ended" ] || { say "stopped before the cluster was up"; finish 75; }
  if grep -q '^failed\.' <<<"$there" || ! alive "$step"; then say "no Ray cluster: see above"; finish 4; fi
  [ "$SECONDS" -lt "$limit" ] || { say "no Ray cluster: $nodes nodes were not up within ${SEQUOR_WAIT_S:-300} s"; finish 4; }
  pause 0.5
done

# --- the driver
before=$(records)
RAY_ADDRESS=$(<"$work/address") "${python[@]}" -m jobs "${words[@]}" &
driver=$!
[ -z "$timed$ended" ] || stop_driver
while alive "$driver"; do
  if [ -z "${lost:-}" ] && ! alive "$step"; then
    lost=$SECONDS
    say "the Ray cluster has ended under the driver"
    stop_driver
  elif [ -n "${lost:-}" ] && [ $((SECONDS - lost)) -ge 30 ]; then
    kill -KILL "$driver" 2>/dev/null
  fi
  pause 1
done
wait "$driver"
code=$?
driver=
[ -z "${lost:-}" ] || code=4
if [ -n "$timed$ended" ] && { [ "$code" = 143 ] || [ "$code" = 15 ]; }; then code=75; fi  # told before it had begun

# --- again, later
if [ "$code" = 75 ] && [ -n "$timed" ] && [ -z "$ended" ]; then
  if [ "$(records)" = "$before" ]; then
    say "nothing was played within the time limit; it is too short for this run (sbatch --time)"
  else
    clean_up  # before the requeue, which ends this script
    say "stopped ahead of the time limit; back into the queue"
    scontrol requeue "$SLURM_JOB_ID" || say "cannot be requeued; the same sbatch line continues the run"
    exit 75
  fi
fi
finish "$code"
