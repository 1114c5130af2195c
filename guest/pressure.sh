# Programs that want more memory than the machine has, under global memory pressure.
#
#   pressure [OPTIONS] KIND [SWAP OPTIONS] -- MIB HOGS PASSES SECONDS [OPTIONS OF hog]
#
# MIB are shared by the HOGS. KIND and its options:
#   rampack [OPTIONS OF rampack swap on]
#   ./NAME [OPTIONS OF rampack swap on]   another build, brought with `--file PATH/NAME`
#   zram    [ALGORITHM [MEM_LIMIT]]
#   zswap   [COMPRESSOR [MAX_POOL_PERCENT]]
#   disk
# Options:
#   --forks          new processes beside, all the time
#   --files          files of twice the memory are written and read beside
#   --stress MIB     stress-ng beside, which checks MIB of memory in all its ways
#   --mglru on|off   the kernel's multi-generational LRU
#   --swappiness N   the kernel's vm.swappiness
#   --stop           stops the daemon of rampack (SIGSTOP) first: this must hang
#   --kills N        the daemon of rampack runs under `rampack keep`, and is killed N times (SIGKILL)
#                    under pressure, at random times, also amid its recovery: all must go on
#   --top            `rampack top` beside: it must draw every five seconds
#   --meddle         under pressure, stops the daemon of rampack for three seconds, asks it to swap
#                    off, and asks it to end (SIGTERM): all must go on
#
# The last line is `RESULT kind=… rc=…`; `from_memory` is the percentage of pages read back that came
# from compressed memory. The status is 0 if all was right, 3 if a page was wrong, 4
# if one was lost, 5 if a program was ended, 6 if nothing was swapped, 7 if swap space could not be
# made or something was left of it, 8 if a thread that serves the swap device took a page fault, 9 if
# `rampack top` did not draw.
. ./lib.sh

forks=
files=
stop=
stress=
meddle=
top=
kills=0
kept_daemon=
while [ $# -gt 0 ]; do
  case $1 in
    --forks) forks=yes ;;
    --files) files=yes ;;
    --stop) stop=yes ;;
    --meddle) meddle=yes ;;
    --top) top=yes ;;
    --kills)
      kills=$2
      kept_daemon=yes
      shift
      ;;
    --stress)
      stress=$2
      shift
      ;;
    --mglru)
      case $2 in on) echo y ;; *) echo n ;; esac > /sys/kernel/mm/lru_gen/enabled
      shift
      ;;
    --swappiness)
      echo "$2" > /proc/sys/vm/swappiness
      shift
      ;;
    *) break ;;
  esac
  shift
done
kind=$1
shift
case $kind in
  ./*)
    mkdir -p /run/build
    ln -sf "$PWD/${kind#./}" /run/build/rampack
    export PATH="/run/build:$PATH"
    kind=rampack
    ;;
esac
swap=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do
  swap+=("$1")
  shift
done
if [ $# -lt 5 ]; then
  echo "usage: pressure [OPTIONS] KIND [SWAP OPTIONS] -- MIB HOGS PASSES SECONDS [HOG OPTIONS]"
  exit 2
fi
mib=$2 hogs=$3 passes=$4 seconds=$5
shift 5

swap_on() {
  case $kind in
    rampack) rampack_on "${swap[@]}" ;;
    zram) zram_on "${swap[@]}" ;;
    zswap) zswap_on "${swap[0]:-lz4}" "${swap[1]:-20}" ;;
    disk) swap_file_on ;;
    *)
      say "$kind: there are rampack, zram, zswap and disk"
      return 1
      ;;
  esac
}

swap_says() {
  case $kind in
    rampack) rampack_says ;;
    zram) cat /sys/block/zram0/mm_stat ;;
    zswap) grep . /sys/kernel/debug/zswap/* ;;
  esac
}

swap_off() {
  case $kind in
    rampack) rampack_off ;;
    zram) zram_off ;;
    zswap) zswap_off ;;
    disk) swapoff /data/swap ;;
  esac && [ "$(swaps)" -eq 0 ]
}

# New processes, until the file `stop` is there.
fork_beside() {
  echo 0 > /proc/self/oom_score_adj
  while [ ! -e /run/stop ]; do
    /bin/busybox true
  done
}

# A file of twice the memory, written and read in pieces, until the file `stop` is there.
file_beside() {
  echo 0 > /proc/self/oom_score_adj
  local pieces piece
  pieces=$(($(sed -n 's/^MemTotal: *\([0-9]*\).*/\1/p' /proc/meminfo) / 16384))
  while :; do
    for piece in $(seq 0 "$pieces"); do
      [ ! -e /run/stop ] || return
      dd if=/dev/zero of=/data/beside bs=1M count=32 seek=$((piece * 32)) conv=notrunc 2> /dev/null
    done
    for piece in $(seq 0 "$pieces"); do
      [ ! -e /run/stop ] || return
      dd if=/data/beside of=/dev/null bs=1M count=32 skip=$((piece * 32)) 2> /dev/null
    done
  done
}

# Verifiers of memory. One that the kernel ends is started again; what one finds wrong is an error.
stress_beside() {
  hungry stress-ng --vm 2 --vm-bytes "$((stress / 2))M" --vm-keep --verify --oomable \
    --timeout "${seconds}s" > /run/stress 2>&1
  local status=$?
  say "stress-ng ended with status $status"
  tail -n 5 /run/stress
  return $status
}

# `rampack top` as anybody runs it, on a terminal of its own, whose times are kept.
top_beside() {
  {
    until [ -e /run/stop ]; do sleep 1; done
    printf q
  } | hungry script --quiet --flush --log-timing /run/top.times --log-out /dev/null \
    --command 'stty rows 24 cols 80; exec rampack top' > /dev/null
}

# What somebody may do to the daemon at the worst moment.
meddle() {
  halt "$daemon" 3 40000
  say "the daemon was stopped for a while and goes on"
  timeout 120 rampack swap off
  say "swap off was asked for: status $?"
  kill -TERM "$daemon"
  say "the daemon was asked to end"
}

# The page faults of the threads that serve the swap device, as rampack tells them.
page_faults() {
  timeout 60 rampack status | sed -n 's/.* threads with \([0-9]*\) page faults.*/\1/p'
}

# The pages read from compressed memory so far, and those read from what is below it.
pages_read() {
  case $kind in
    rampack)
      echo "$(timeout 20 rampack get kernel/debug/zswap zswpin)" \
        "$(timeout 20 rampack get kernel/debug/zswap read_back_pages)"
      ;;
    zswap) echo "$(vmstat zswpin) $(vmstat pswpin)" ;;
    zram) echo "$(vmstat pswpin) 0" ;;
    disk) echo "0 $(vmstat pswpin)" ;;
  esac
}

# The seconds that all CPUs have spent on programs, in the kernel, and on nothing.
cpu_seconds() {
  awk '/^cpu / { printf "%.1f %.1f %.1f", ($2 + $3) / 100, ($4 + $7 + $8) / 100, ($5 + $6) / 100 }' \
    /proc/stat
}

# Each word of $2 less the one of $1 at its place.
less() {
  awk -v from="$1" -v to="$2" 'BEGIN {
    n = split(from, a, " "); split(to, b, " ")
    for (i = 1; i <= n; i++) printf("%s%.1f", (i > 1 ? "/" : ""), b[i] - a[i])
  }'
}

# The sum of `name=NUMBER` in the last lines of the hogs.
sum() {
  grep -h ' END ' /run/hog.* 2> /dev/null |
    sed "s/.* $1=\([0-9]*\).*/\1/" | awk '{ sum += $1 } END { print sum + 0 }'
}

# Kills the daemon of the keeper so often. A locked program has taken its memory before, and tells
# how long it waited for a page (`mon`). It calls nothing that could need memory for long.
kill_beside() {
  local count pause now before=
  until grep -q filled /run/hog.1 2> /dev/null; do
    [ ! -e /run/stop ] || return
    sleep 0.5
  done
  for ((count = 1; count <= kills; count++)); do
    # Some are killed while they recover, others have served for a while.
    case $((RANDOM % 4)) in
      0) pause=0.$((RANDOM % 10)) ;;
      *) pause=$((2 + RANDOM % 4)).$((RANDOM % 10)) ;;
    esac
    sleep $pause
    for ((tries = 0; tries < 3000; tries++)); do
      now=$(daemon_of_keeper)
      [ -z "$now" ] || [ "$now" = "$before" ] || break
      sleep 0.02
    done
    if [ -z "$now" ] || [ "$now" = "$before" ]; then
      say "FAILED: no daemon is started again after $((count - 1)) kills"
      return 1
    fi
    kill -9 "$now"
    before=$now
  done
  say "$kills daemons were killed"
  echo "$kills" > /run/killed
}

say "$kind ${swap[*]}; MGLRU $(cat /sys/kernel/mm/lru_gen/enabled 2> /dev/null)," \
  "swappiness $(cat /proc/sys/vm/swappiness)"
rc=0
daemon=
swap_on || {
  echo "RESULT kind=$kind hog_seconds=0 ok=0 wrong=0 lost=0 finished=no swapped_out=0" \
    "swapped_in=0 from_memory=- cpu_user_system_idle=- daemon_cpu_seconds=0 rc=7"
  exit 7
}
out=$(swapped out) in=$(swapped in)
read_before=$(pages_read) cpu_before=$(cpu_seconds)
watch_memory ${keeper:-$daemon}
beside=()
if [ -n "$forks" ]; then
  fork_beside & beside+=($!)
  fork_beside & beside+=($!)
fi
if [ -n "$files" ]; then
  file_beside & beside+=($!)
fi
verifier=
if [ -n "$stress" ]; then
  stress_beside &
  verifier=$!
fi
if [ -n "$stop" ]; then
  kill -STOP "$daemon"
  say "the daemon is stopped"
fi

say "$hogs hogs of $((mib / hogs)) MiB, $passes passes, at most $seconds s"
start=$(uptime_seconds)
started=()
for hog in $(seq "$hogs"); do
  (
    hungry hog --mib $((mib / hogs)) --passes "$passes" --seconds "$seconds" --seed "$hog" \
      --name "hog$hog" "$@" | tee "/run/hog.$hog"
    exit "${PIPESTATUS[0]}"
  ) &
  started+=($!)
done
if [ "$kills" -gt 0 ]; then
  kill_beside & beside+=($!)
fi
if [ -n "$top" ]; then
  top_beside & beside+=($!)
fi
if [ -n "$meddle" ]; then
  meddle & beside+=($!)
fi
for hog in "${started[@]}"; do
  wait "$hog"
  status=$?
  case $status in
    0) ;;
    3) rc=3 ;;
    4) [ $rc -eq 3 ] || rc=4 ;;
    *)
      say "a hog ended with status $status"
      [ $rc -ne 0 ] || rc=5
      ;;
  esac
done
hog_seconds=$(seconds_between "$start" "$(uptime_seconds)")
cpus=$(less "$cpu_before" "$(cpu_seconds)")
say "hogs done after $hog_seconds s"
if [ -n "$verifier" ]; then
  wait "$verifier" || rc=3
fi
touch /run/stop
for other in "${beside[@]}"; do
  wait "$other"
done
if [ "$kills" -gt 0 ]; then
  daemon=$(daemon_of_keeper)
  tail -n 4 "$daemon_log"
  lost=$(timeout 60 rampack get kernel/debug/zswap lost_pages)
  say "$(cat /run/killed 2> /dev/null || echo fewer) of $kills kills; $lost pages are lost"
  if [ $rc -eq 0 ] && { [ ! -e /run/killed ] || [ "$lost" != 0 ]; }; then rc=5; fi
fi
if [ -n "$top" ]; then
  # Of each line the time since the one before comes first.
  pause=$(sort -rn /run/top.times | head -n 1 | cut -d' ' -f1)
  say "top drew $(wc -l < /run/top.times) times, the longest pause was ${pause:-none} s"
  if [ $rc -eq 0 ] && ! awk -v pause="${pause:-99}" 'BEGIN { exit !(pause <= 5) }'; then rc=9; fi
fi
swapped_out=$(($(swapped out) - out)) swapped_in=$(($(swapped in) - in))
if [ $rc -eq 0 ] && [ "$swapped_in" -eq 0 ]; then
  say "nothing was swapped: this run shows nothing"
  rc=6
fi
from_memory=$(less "$read_before" "$(pages_read)" |
  awk -F / '{ if ($1 + $2) printf("%.1f", 100 * $1 / ($1 + $2)); else printf("-") }')
cpu=0
swap_says
if [ -n "$daemon" ]; then
  cpu=$(daemon_cpu_seconds)
  daemon_memory
  echo
  faults=$(page_faults)
  if [ $rc -eq 0 ] && [ "$faults" != 0 ]; then
    say "the serving threads took ${faults:-?} page faults"
    rc=8
  fi
fi
cat /proc/pressure/memory 2> /dev/null
say "swap off"
if ! swap_off; then
  say "something is left of the swap space"
  [ $rc -ne 0 ] || rc=7
fi
kill $monitor
finished=yes
if grep -q 'broken off' /run/hog.*; then
  finished=no
fi
kernel_notes
echo "RESULT kind=$kind hog_seconds=$hog_seconds ok=$(sum ok) wrong=$(sum wrong)" \
  "lost=$(sum lost) finished=$finished swapped_out=$swapped_out swapped_in=$swapped_in" \
  "from_memory=$from_memory cpu_user_system_idle=$cpus daemon_cpu_seconds=$cpu rc=$rc"
exit $rc
