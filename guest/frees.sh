# Programs come, are swapped out and end, beside one that stays: what the pool holds beside what the
# kernel has in use.
#
#   frees [--deaf] [--limit BYTES] KIND [SWAP OPTIONS] -- MIB ROUNDS
#   frees [--deaf] [--limit BYTES] --build JOBS KIND [SWAP OPTIONS] -- ROUNDS
#
# The second is a build, with so many jobs at once: each round compiles what is in the file build.tar,
# which is given with `cargo xtask guest --file`: cc1, the libraries that it needs, and preprocessed
# files *.i. What the rounds make must be the same.
#
# With --limit the programs are in a control group of so much memory, and the machine has enough: a
# loop device may serve swap space then.
#
# MIB are shared by the program that stays and the one of each round. KIND is as in `pressure`, of
# rampack, zram and zswap. Every page is checked. With rampack, freed pages must be heard of, and once
# no program is left, the pool must hold no more pages than the kernel has in use, and a few; unless
# --deaf is given: then the kernel does not describe itself. The last line is `FREES kind=… rc=…`:
# pool and used bytes are means and maxima of a look every two seconds; `end` is after all programs
# have ended.
. ./lib.sh

deaf=
if [ "$1" = --deaf ]; then
  deaf=yes
  mount -t tmpfs tmpfs /sys/kernel/btf
  shift
fi
group=
if [ "$1" = --limit ]; then
  group=/sys/fs/cgroup/hogs
  echo +memory > /sys/fs/cgroup/cgroup.subtree_control
  mkdir $group
  echo "$2" > $group/memory.max
  shift 2
fi
jobs=0
if [ "$1" = --build ]; then
  jobs=$2
  shift 2
fi
kind=$1
shift
swap=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do
  swap+=("$1")
  shift
done
if [ "$jobs" -gt 0 ]; then rounds=$2; else mib=$2 rounds=$3; fi

swap_on() {
  case $kind in
    rampack) rampack_on "${swap[@]}" ;;
    zram) zram_on "${swap[@]}" ;;
    zswap) zswap_on "${swap[0]:-lz4}" 50 ;;
  esac
}

# Pages in the pool, and its bytes.
pool() {
  case $kind in
    rampack)
      set -- $(timeout 20 rampack get kernel/debug/zswap stored_pages pool_total_size)
      echo "$2 $4"
      ;;
    zram) awk '{ print $1 / 4096, $3 }' /sys/block/zram0/mm_stat ;;
    zswap) awk '/^Zswapped:/ { p = $2 / 4 } /^Zswap:/ { b = $2 * 1024 } END { print p, b }' /proc/meminfo ;;
  esac
}

# Pages that the kernel has in use.
used() {
  awk 'NR > 1 { sum += $4 } END { print sum / 4 }' /proc/swaps
}

watch_pool() {
  until [ -e /run/stop ]; do
    # What is in use changes meanwhile: the mean of before and after.
    before=$(used)
    echo "$(pool) $before $(used)" >> /run/looks
    # A look takes an emulated CPU a twentieth of a second.
    sleep 2
  done
}

run_hog() {
  hungry bash -c '[ -z "$1" ] || echo $$ > $1/cgroup.procs; shift; exec "$@"' in "$group" \
    hog --name "$1" --seed "$2" --mib $((mib / 2)) --seconds 900 --random "${@:3}" | tee "/run/hog.$1"
  [ "${PIPESTATUS[0]}" -eq 0 ]
}

# Compiles all files, and notes what that makes in a file.
run_build() {
  ls *.i | hungry bash -c '[ -z "$0" ] || echo $$ > $0/cgroup.procs
    exec xargs -P "$1" -I {} bash -c "set -o pipefail
      LD_LIBRARY_PATH=. ./cc1 -quiet -fpreprocessed -O1 {} -o - | md5sum | sed s/-/{}/ >> $2 && echo --- {}"' \
    "$group" "$jobs" "$1" || return
  sort -k 2 -o "$1" "$1"
}

rm -f /run/stop /run/end /run/looks /run/hog.*
rc=0 stays=
fail() {
  say "FAILED: $*"
  rc=1
}

[ "$jobs" -eq 0 ] || tar -xf build.tar || exit 7
swap_on || exit 7
out=$(swapped out) in=$(swapped in)
watch_memory $daemon
watch_pool &
watcher=$!
start=$(uptime_seconds)
if [ "$jobs" -eq 0 ]; then
  run_hog stays 1 --passes 1000 --until /run/end &
  stays=$!
fi
for round in $(seq "$rounds"); do
  if [ "$jobs" -gt 0 ]; then
    rm -f "/run/made.$round"
    run_build "/run/made.$round" || fail "round $round"
    cmp /run/made.1 "/run/made.$round" || fail "round $round makes something else"
  else
    run_hog "round$round" $((round + 1)) --passes 1 || fail "round $round"
  fi
  say "round $round: pool $(pool), used $(used)"
done
touch /run/end
[ -z "$stays" ] || wait $stays || fail "the program that stays"
seconds=$(seconds_between "$start" "$(uptime_seconds)")
touch /run/stop
wait $watcher
pages=0 cpu=0
if [ "$kind" = rampack ]; then
  cpu=$(daemon_cpu_seconds)
  timeout 60 rampack status | tee /run/said
  # The kernel may keep some pages of its own files there.
  for tries in $(seq 100); do
    pages=$(pool | cut -d' ' -f1)
    [ "$pages" -gt $(($(used) + 64)) ] || break
    sleep 0.2
  done
  if grep -q 'heard of by discards' /run/said; then
    [ -n "$deaf" ] || fail "freed pages are not heard of"
  elif [ "$pages" -gt $(($(used) + 64)) ]; then
    fail "$(used) pages are in use, and the cache has $pages"
  fi
fi
pages=$(pool) bytes=${pages#* } pages=${pages%% *}
swapped_out=$(($(swapped out) - out)) swapped_in=$(($(swapped in) - in))
[ "$swapped_in" -gt 0 ] || fail "nothing was swapped"
looks=$(awk '{ pages += $1; bytes += $2; used += ($3 + $4) / 2; if ($2 > most) most = $2 }
  END { printf "pool_mean=%d pool_most=%d pages_mean=%d used_mean=%d ratio=%.2f", bytes / NR, most,
    pages / NR, used / NR, pages / (used + 1) }' /run/looks)
say "used at the end: $(used) pages"
case $kind in
  rampack) rampack_off || fail "swap off" ;;
  # The next kind has swap space of its own.
  zram) zram_off ;;
  zswap) zswap_off ;;
esac
kill $monitor
kernel_notes
echo "FREES kind=$kind${deaf:+-deaf} seconds=$seconds $looks end_pages=$pages end_bytes=$bytes" \
  "out=$swapped_out in=$swapped_in daemon_cpu_seconds=$cpu rc=$rc"
exit $rc
