# Helpers for the guest's scripts, in bash: `. ./lib.sh`.

# Seconds since the machine began.
uptime_seconds() {
  cut -d' ' -f1 /proc/uptime
}

# Seconds between two such times.
seconds_between() {
  awk -v from="$1" -v to="$2" 'BEGIN { printf "%.1f", to - from }'
}

begun=$(uptime_seconds)

# Says what the script is doing. Each line counts as progress.
say() {
  echo "--- [$(seconds_between "$begun" "$(uptime_seconds)")s] $*"
}

# The group of processes whose memory is not swapped out.
kept=/sys/fs/cgroup/kept

# stay_in_memory ARGUMENTS: nothing of this script, and of what it starts, is swapped out: it repairs
# the device that the others wait for. The script begins again, because what is there already counts
# for the group from before.
stay_in_memory() {
  [ ! -d $kept ] || return 0
  echo +memory > /sys/fs/cgroup/cgroup.subtree_control
  mkdir -p $kept
  echo 0 > $kept/memory.swap.max
  echo 48M > $kept/memory.min
  echo $$ > $kept/cgroup.procs
  exec bash "$0" "$@"
}

# Takes this process out of that group.
leave_memory() {
  if [ -d $kept ]; then echo 0 > /sys/fs/cgroup/cgroup.procs; fi
}

# Runs a command that the kernel may end when memory is out, which the scripts themselves are not.
hungry() {
  (
    echo 0 > /proc/self/oom_score_adj
    leave_memory
    exec "$@"
  )
}

# A counter of /proc/vmstat.
vmstat() {
  sed -n "s/^$1 //p" /proc/vmstat
}

# swapped out|in: pages so far. Those of zswap are among them, which Linux 7 counts apart.
swapped() {
  echo $(($(vmstat "pswp$1") + $(vmstat "zswp$1") + 0))
}

# How many swap devices there are.
swaps() {
  tail -n +2 /proc/swaps | wc -l
}

# zram_on [ALGORITHM [MEM_LIMIT]]: the kernel swaps to its zram.
zram_on() {
  modprobe zram num_devices=1
  echo "${1:-lz4}" > /sys/block/zram0/comp_algorithm
  echo 1G > /sys/block/zram0/disksize
  if [ -n "$2" ]; then echo "$2" > /sys/block/zram0/mem_limit; fi
  mkswap /dev/zram0 > /dev/null
  swapon -d -p 100 /dev/zram0
}

zram_off() {
  swapoff /dev/zram0 && echo 1 > /sys/block/zram0/reset
}

# The kernel swaps to a file.
swap_file_on() {
  fallocate -l 1G /data/swap
  mkswap /data/swap > /dev/null
  swapon -p 100 /data/swap
}

# zswap_on COMPRESSOR MAX_POOL_PERCENT: with the kernel's zswap in front of it.
zswap_on() {
  local parameters=/sys/module/zswap/parameters
  modprobe -q "$1"
  echo "$1" > $parameters/compressor
  # Since Linux 6.18 there is no other.
  [ ! -e $parameters/zpool ] || echo zsmalloc > $parameters/zpool
  echo "$2" > $parameters/max_pool_percent
  echo 1 > $parameters/enabled
  grep . $parameters/*
  swap_file_on
}

zswap_off() {
  local status
  swapoff /data/swap
  status=$?
  echo 0 > /sys/module/zswap/parameters/enabled
  return $status
}

# Watches the machine, and the daemon with this PID, if there is one.
watch_memory() {
  mon 5 "$@" &
  monitor=$!
}

# The log of the daemon.
daemon_log=/run/daemon.log

# rampack_on ARGUMENTS: starts `rampack swap on` and waits until the kernel swaps to it. The daemon's
# PID is in `daemon` then. With `kept_daemon` set it runs under `rampack keep`, whose PID is in `keeper`.
rampack_on() {
  local before tries=0
  before=$(swaps)
  if [ -n "$kept_daemon" ]; then
    # While no daemon serves, the keeper must not wait for a page of its log.
    mkdir -p /mnt/log
    mount -t tmpfs -o noswap,size=8m tmpfs /mnt/log || return 1
    daemon_log=/mnt/log/daemon.log
  fi
  (
    leave_memory
    exec rampack ${kept_daemon:+keep} swap on "$@"
  ) > "$daemon_log" 2>&1 &
  daemon=$!
  while [ "$(swaps)" -le "$before" ] && kill -0 "$daemon" 2> /dev/null && [ $tries -lt 600 ]; do
    sleep 0.1
    tries=$((tries + 1))
  done
  cat "$daemon_log"
  cat /proc/swaps
  if [ "$(swaps)" -le "$before" ]; then
    say "rampack swap on made no swap space"
    return 1
  fi
  if [ -n "$kept_daemon" ]; then
    keeper=$daemon
    daemon=$(daemon_of_keeper)
  fi
  echo "daemon $daemon: oom_score_adj $(cat "/proc/$daemon/oom_score_adj")," \
    "$(ls "/proc/$daemon/task" | wc -l) threads, $(daemon_memory)"
}

# The daemon that the keeper runs now.
daemon_of_keeper() {
  local children=
  read -r children < "/proc/$keeper/task/$keeper/children" 2> /dev/null
  echo "${children%% *}"
}

# What memory the daemon has.
daemon_memory() {
  grep -E '^Vm(RSS|HWM|Lck|Swap)' "/proc/$daemon/status" | tr -s '\t ' ' ' | tr '\n' ';'
}

# What the daemon has used of CPUs, in seconds.
daemon_cpu_seconds() {
  sed 's/.*) //' "/proc/$daemon/stat" | awk '{ printf "%.2f", ($12 + $13) / 100 }'
}

# What rampack says of itself.
rampack_says() {
  timeout 60 rampack status
  local counter
  for counter in stored_pages pool_total_size pool_limit_hit written_back_pages \
    reject_reclaim_fail reject_alloc_fail reject_kmemcache_fail through_pages read_back_pages \
    device_pages same_filled_pages; do
    echo "$counter=$(timeout 20 rampack get kernel/debug/zswap $counter 2>&1)"
  done | tr '\n' ' '
  echo
}

# Takes the swap device of rampack away. Fails if anything is left of it. The time is for a machine
# that stands still: on a busy host, reading pages back that all fail takes minutes.
rampack_off() {
  local status=0 tries=0
  timeout 600 rampack swap off || {
    say "rampack swap off: status $?"
    status=1
  }
  while kill -0 "$daemon" 2> /dev/null && [ $tries -lt 100 ]; do
    sleep 0.1
    tries=$((tries + 1))
  done
  if kill -0 "$daemon" 2> /dev/null; then
    say "the daemon is still there"
    return 1
  fi
  wait "${keeper:-$daemon}" || {
    say "the daemon ended with status $?"
    status=1
  }
  cat "$daemon_log"
  if [ "$(swaps)" -ne 0 ]; then
    say "swap space is still there"
    cat /proc/swaps
    status=1
  fi
  if grep -l . /sys/block/loop*/loop/backing_file 2> /dev/null; then
    say "a loop device is still there"
    status=1
  fi
  if grep -E ' fuse[. ]' /proc/mounts; then
    say "a file system is still mounted"
    status=1
  fi
  return $status
}

# What the kernel has said that matters here.
kernel_notes() {
  say "what the kernel said"
  dmesg | grep -v 'Command line\|Kernel command' |
    grep -E -i 'oom|hung|blocked for more|lockup|stall|swap|I/O error|Killed|BUG|WARN|rcu:' |
    tail -n 30
}

# What has gone wrong so far.
failures=0

fail() {
  say "FAILED: $*"
  failures=$((failures + 1))
}

# pause MILLISECONDS: up to so many.
pause() {
  sleep "$(awk -v most="$1" -v random=$RANDOM 'BEGIN { printf "%.3f", most * random / 32768000 }')"
}

# check_with_fio DEVICE: fio writes to the device and checks it, until /tmp/stop is there. It asks
# for more at once than the driver takes: a server that is killed has all it can have.
check_with_fio() {
  until [ -e /tmp/stop ]; do
    fio --name=verify --filename="$1" --direct=1 --ioengine=psync --thread --numjobs=12 \
      --rw=randrw --bsrange=4k-128k --blockalign=4k --size=4m --offset_increment=4m \
      --verify=crc32c --verify_fatal=1 --randseed=$RANDOM --group_reporting > /tmp/fio 2>&1 || {
      tail -n 20 /tmp/fio
      return 1
    }
    echo >> /tmp/rounds
  done
}

# checked_by PROCESS: waits for the end of check_with_fio.
checked_by() {
  touch /tmp/stop
  wait "$1" || fail "fio found a fault"
  verified=$(wc -l < /tmp/rounds)
  [ "$verified" -gt 0 ] || fail "fio did not check the device"
  say "fio checked the device $verified times"
}

group=/sys/fs/cgroup/hungry

# swap_to DEVICE [LESS]: a program swaps to the device, and wants so many MiB less than usual; its
# process is in `program`. The device has room for all 52 MiB: pages that are read in again keep their
# slots, and while the device waits for a server no slot is freed.
swap_to() {
  mkswap "$1" > /dev/null
  swapon "$1" || fail swapon
  echo +memory > /sys/fs/cgroup/cgroup.subtree_control
  mkdir -p $group
  echo 24M > $group/memory.max
  rm -f /tmp/stop /tmp/hog
  (
    echo 0 > $group/cgroup.procs
    exec hog --mib $((52 - ${2:-0})) --passes 100000 --seconds 3600 --seed $RANDOM --name hog --random \
      --progress 5 --until /tmp/stop > /tmp/hog
  ) &
  program=$!
  until grep -q filled /tmp/hog 2> /dev/null; do sleep 0.2; done
}

# swapped_to DEVICE: ends the program.
swapped_to() {
  touch /tmp/stop
  wait $program
  local status=$?
  tail -n 1 /tmp/hog
  [ $status -eq 0 ] || fail "the program ended with status $status"
  swapped=$(vmstat pswpin)
  [ "$swapped" -gt 1000 ] || fail "only $swapped pages were swapped in"
  swapoff "$1" || fail swapoff
  rmdir $group
}

# answers: the daemon answers, and is another one than `before`.
answers() {
  local left=600
  until [ "$(daemon_of_keeper)" != "$before" ] && timeout 60 rampack status --json > /tmp/status 2>&1; do
    [ $((left -= 1)) -gt 0 ] || { fail "no daemon answers: $(cat /tmp/status)"; return 1; }
    sleep 0.1
  done
}
