#!/bin/bash
# Block devices of ublk, served by the example serve_ublk of crates/ublk: file systems, all kinds of
# requests, devices that fail, panic or are slow, taking them down, a server that is killed, and
# daemons in containers. The name of one of the functions below and its arguments make it run that
# alone.
cd "$(dirname "$0")" || exit 1
PATH=$PWD:$PATH
failures=0
megabytes=64

say() {
  echo "--- [$(cut -d' ' -f1 /proc/uptime)s] $*"
}

fail() {
  echo "FAILED: $*"
  failures=$((failures + 1))
}

# must COMMAND: it succeeds.
must() {
  "$@" > /tmp/out 2>&1 || fail "$* ($?): $(tail -n 3 /tmp/out)"
}

# must_not COMMAND: it fails.
must_not() {
  if "$@" > /tmp/out 2>&1; then fail "$* did not fail"; fi
}

# serve QUEUES WAITERS KIND [DEPTH LARGEST]: a device of 64 MB; its node is in `device`.
serve() {
  coproc SERVER { exec serve_ublk $((megabytes << 20)) "$@"; }
  server=$SERVER_PID
  local word
  read -r -t 120 word device <&"${SERVER[0]}"
  [ "$word" = ok ] || fail "serve_ublk $*: $word $device"
  say "$device: $*, $(cat /sys/block/"${device##*/}"/queue/{max_sectors_kb,logical_block_size,rotational,write_cache} | tr '\n' ' ')"
}

# ask COMMAND: one line to the server, one back, in `answer`.
ask() {
  echo "$1" >&"${SERVER[1]}"
  answer=
  read -r -t 120 answer <&"${SERVER[0]}" || fail "no answer to $1"
}

expect() {
  ask "$1"
  case $answer in
  $2) ;;
  *) fail "$1 was answered '$answer' instead of '$2'" ;;
  esac
}

# The device goes, and its server ends.
finish() {
  expect down 'ok*'
  expect served 'ok false'
  eval "exec ${SERVER[1]}>&-"
  wait "$server" || fail "the server ended with $?"
  [ ! -e "$device" ] || fail "$device is still there"
  [ -z "$(ls /sys/class/ublk-char)" ] || fail "left: $(ls /sys/class/ublk-char)"
}

# requests COUNT: so many of 4 KiB, one after the other, in both directions.
requests() {
  dd if=/dev/zero of="$device" bs=4k count="$1" oflag=direct conv=notrunc status=none || fail dd
  dd if="$device" of=/dev/null bs=4k count="$1" iflag=direct status=none || fail dd
}

file_system() {
  local queues=$1 waiters=$2 n
  serve "$queues" "$waiters" plain
  must mke2fs -q -t ext4 -F "$device"
  mkdir -p /mnt
  must mount -t ext4 "$device" /mnt
  dd if=/dev/urandom of=/tmp/random bs=64k count=128 status=none
  for n in 1 2 3 4; do cp /tmp/random "/mnt/$n" & done
  wait $(jobs -p | grep -v "^$server\$")
  sync
  expect down 'error /dev/ublkb* is in use'
  echo 3 > /proc/sys/vm/drop_caches
  for n in 1 2 3 4; do must cmp /tmp/random "/mnt/$n"; done
  must umount /mnt
  must mount -t ext4 -o ro "$device" /mnt
  for n in 1 2 3 4; do must cmp /tmp/random "/mnt/$n"; done
  must umount /mnt
  rm -f /tmp/random
  finish
}

sizes() {
  local size
  serve 2 0 plain 32 65536
  dd if=/dev/urandom of=/tmp/random bs=1M count=8 status=none
  for size in 4 8 12 28 64 100 128 256 1024 8192; do
    must dd if=/tmp/random of="$device" bs=${size}k oflag=direct conv=notrunc status=none
    must dd if="$device" of=/tmp/back bs=${size}k count=$(((8192 + size - 1) / size)) iflag=direct status=none
    truncate -s 8M /tmp/back
    must cmp /tmp/random /tmp/back
    must blkdiscard -o 0 -l 8388608 "$device"
  done
  must dd if=/tmp/random of="$device" bs=1M count=8 oflag=direct conv=notrunc status=none
  must blkdiscard -o 0 -l 4194304 "$device"
  dd if=/dev/zero of=/tmp/back bs=1M count=4 status=none
  dd if=/tmp/random of=/tmp/back bs=1M count=4 skip=4 seek=4 status=none
  must cmp -n 8388608 "$device" /tmp/back
  must blkdiscard "$device"
  must cmp -n $((megabytes << 20)) "$device" /dev/zero
  rm -f /tmp/back /tmp/random
  expect heap 'ok 0'
  finish
}

# Readers and writers beside each other, each in a part of its own.
parallel() {
  local n pids=()
  serve 2 2 "$1"
  for n in 0 1 2 3 4 5 6 7; do
    (
      dd if=/dev/urandom of="/tmp/part$n" bs=64k count=32 status=none
      for turn in 1 2 3; do
        dd if="/tmp/part$n" of="$device" bs=4k seek=$((n * 512)) oflag=direct conv=notrunc status=none || exit 1
        dd if="$device" of="/tmp/read$n" bs=8k skip=$((n * 256)) count=256 iflag=direct status=none || exit 1
        cmp "/tmp/part$n" "/tmp/read$n" || exit 1
      done
    ) &
    pids+=($!)
  done
  for n in "${pids[@]}"; do wait "$n" || fail "a reader or writer"; done
  rm -f /tmp/part* /tmp/read*
  expect heap 'ok 0'
  finish
}

# What every road to a device must pass.
road() {
  serve_ublk road > /tmp/out 2>&1 || fail "the suite of roads: $(tail -n 20 /tmp/out)"
  say "$(grep -c 'panicked' /tmp/out) panics, as the suite has them"
  nothing_left || fail "left: $(ls /sys/class/ublk-char)"
}

# Random reads and writes of mixed sizes, each compared with what was written.
mixed() {
  serve 2 2 waiting
  must fio --name=mixed --filename="$device" --direct=1 --ioengine=psync --thread --numjobs=4 \
    --rw=randrw --bsrange=4k-256k --blockalign=4k --size=8m --offset_increment=8m --verify=crc32c \
    --group_reporting
  expect heap 'ok 0'
  finish
}

# Threads that serve do not fault, whatever there is to do.
faults() {
  serve 2 2 "$1"
  requests 100
  ask faults
  local before=$answer
  requests 2000
  ask faults
  set -- $(cat /sys/block/"${device##*/}"/stat)
  say "faults before and after 4000 requests: $before, $answer; $1 reads, $5 writes"
  [ "$1" -ge 2100 ] && [ "$5" -ge 2100 ] || fail "there were fewer requests"
  [ "$before" = "$answer" ] || fail "threads that serve had faults"
  expect heap 'ok 0'
  finish
}

failing() {
  serve 1 1 failing
  must_not dd if=/dev/zero of="$device" bs=4k seek=100 count=1 oflag=direct conv=notrunc status=none
  must_not dd if="$device" of=/dev/null bs=4k skip=100 count=1 iflag=direct status=none
  must dd if="$device" of=/dev/null bs=4k count=1 iflag=direct status=none
  finish
  serve 1 1 panicking
  must_not dd if="$device" of=/dev/null bs=4k skip=77 count=1 iflag=direct status=none
  must dd if="$device" of=/dev/null bs=4k skip=78 count=1 iflag=direct status=none
  finish
  serve 1 1 readonly
  must_not dd if=/dev/zero of="$device" bs=4k count=1 oflag=direct conv=notrunc status=none
  must dd if="$device" of=/dev/null bs=4k count=1 iflag=direct status=none
  finish
}

# wait_until SECONDS COMMAND: the time is a bound for a machine that stands still.
wait_until() {
  local left=$(($1 * 10))
  shift
  until "$@"; do
    [ $((left -= 1)) -gt 0 ] || { fail "never: $*"; return 1; }
    sleep 0.1
  done
}

nothing_left() {
  [ -z "$(ls /sys/class/ublk-char)" ]
}

# holds COUNT: so many requests wait in the device.
holds() {
  ask held
  [ "$answer" = "ok $1" ]
}

# Requests that wait hold up nobody else, if there are waiters, and wait beside each other.
slow() {
  local n
  serve 1 2 held
  for n in 0 1 2 3; do
    dd if="$device" of=/dev/null bs=4k skip=$((8192 + n)) count=2 iflag=direct status=none &
  done
  wait_until 60 holds 2
  requests 20
  expect held 'ok 2'
  expect release 'ok*'
  wait $(jobs -p | grep -v "^$server\$")
  expect held 'ok 0'
  finish
  # Taken down while one is under way.
  serve 1 2 slow
  dd if="$device" of=/dev/null bs=4k skip=9000 count=1 iflag=direct status=none &
  sleep 0.1
  finish
}

# Swapped to; and it is in use then.
swap() {
  serve 1 1 plain
  must mkswap "$device"
  must swapon "$device"
  expect down 'error /dev/ublkb* is in use'
  must swapoff "$device"
  finish
}

killed() {
  serve 2 1 held
  dd if="$device" of=/dev/null bs=4k skip=9000 count=1 iflag=direct status=none 2> /dev/null &
  local reader=$!
  wait_until 60 holds 1
  kill -9 "$server"
  wait "$reader" && fail "a read from a killed server succeeded"
  wait "$server" 2> /dev/null
  wait_until 60 test ! -e "$device"
  must_not dd if="$device" of=/dev/null bs=4k count=1 iflag=direct status=none
  say "left: $(ls /sys/class/ublk-char)"
  must serve_ublk clear
  say "cleared: $(cat /tmp/out)"
  [ -z "$(ls /sys/class/ublk-char)" ] || fail "left: $(ls /sys/class/ublk-char)"
  # While it is mounted.
  serve 1 0 plain
  must mke2fs -q -t ext4 -F "$device"
  must mount -t ext4 "$device" /mnt
  kill -9 "$server"
  wait "$server" 2> /dev/null
  sleep 0.5
  must serve_ublk clear
  say "cleared while mounted: $(cat /tmp/out), left: $(ls /sys/class/ublk-char)"
  umount /mnt
  wait_until 60 nothing_left
}

# Nothing is left of a device that could not be made.
unable() {
  local files
  for files in $(seq 4 16); do
    prlimit --nofile="$files" serve_ublk 1048576 2 1 plain 4 65536 < /dev/null > /tmp/out 2>&1
    [ -z "$(ls /sys/class/ublk-char)" ] || fail "left with $files files: $(ls /sys/class/ublk-char)"
    ls /dev/ublk[bc]* > /tmp/nodes 2> /dev/null && fail "left with $files files: $(cat /tmp/nodes)"
    echo "$files files: $(cat /tmp/out)"
  done
  grep -q '^ok' /tmp/out || fail "16 files are not enough"
}

# A number is another's once the device was taken down.
next() {
  local second tries
  serve 1 1 plain
  expect down 'ok*'
  mkfifo /tmp/second
  # The driver frees the number a moment after the removal, so the next device may get another one.
  for tries in $(seq 20); do
    begin_second
    [ "$answer" != "ok $device" ] || break
    end_second
  done
  [ "$answer" = "ok $device" ] || fail "the second device said '$answer', $tries times tried"
  expect down 'ok*'
  eval "exec ${SERVER[1]}>&-"
  wait "$server" || fail "the server ended with $?"
  must dd if="$device" of=/dev/null bs=4k count=1 iflag=direct status=none
  end_second
  rm -f /tmp/second
  nothing_left || fail "left: $(ls /sys/class/ublk-char)"
}

# Serves until `end_second`; the first line of the server is in `answer`.
begin_second() {
  : > /tmp/said
  serve_ublk 1048576 1 1 plain < /tmp/second >> /tmp/said &
  second=$!
  exec 9> /tmp/second
  wait_until 60 test -s /tmp/said
  answer=$(cat /tmp/said)
}

end_second() {
  exec 9>&-
  wait $second || fail "the second server ended with $?: $(cat /tmp/said)"
}

# container NAME: runs the function in_NAME in a container: its own mounts, processes that are
# numbered anew, and the root of the daemon at the same path as everywhere. `/tmp` is that of all.
container() {
  unshare -m -p --fork --mount-proc \
    bash -c "mount -t tmpfs tmpfs /run && in_$1 && touch /tmp/$1.ended" > "/tmp/$1.log" 2>&1
}

# In a container: starts rampack, and waits until it serves; its process is in `daemon`.
begins() {
  local left=600
  : > /run/log
  rampack "$@" >> /run/log 2>&1 &
  daemon=$!
  until grep -q 'serving in' /run/log; do
    kill -0 $daemon && [ $((left -= 1)) -gt 0 ] || { cat /run/log; return 1; }
    sleep 0.1
  done
}

# In a container: waits for a file, a minute at most.
await() {
  local left=600
  until [ -e "$1" ]; do
    [ $((left -= 1)) -gt 0 ] || return 1
    sleep 0.1
  done
}

# Its device is live all the time.
in_living() {
  begins serve --transport ublk --size 32M && touch /tmp/living.ready &&
    await /tmp/end && rampack stop && wait $daemon
}

# The device waits, because the daemon and its keeper are killed, until the next daemon clears it.
in_waiting() {
  local child
  begins keep serve --transport ublk --size 16M || return
  child=$(cat /proc/$daemon/task/$daemon/children)
  echo $child > /tmp/pid
  kill -9 $daemon $child
  touch /tmp/waiting.ready
  await /tmp/clear && begins serve --transport ublk --size 16M && cat /run/log &&
    grep -q 'deleted /dev/ublkb1' /run/log && ! grep -q ublkb0 /run/log &&
    rampack stop && wait $daemon
}

# A daemon with the process number of the one in `waiting` is killed, and the next one starts.
in_killed() {
  echo $(($(cat /tmp/pid) - 1)) > /proc/sys/kernel/ns_last_pid
  begins serve --transport ublk --size 16M && [ $daemon = $(cat /tmp/pid) ] || return
  kill -9 $daemon
  wait $daemon
  begins serve --transport ublk --size 16M && cat /run/log && rampack stop && wait $daemon &&
    grep -q 'deleted /dev/ublkb2' /run/log && ! grep -q 'ublkb0' /run/log &&
    grep -q 'ublkb1 is left alone' /run/log
}

# A start after a kill clears the devices of its own root alone.
containers() {
  local reader waiting name
  export -f begins await in_living in_waiting in_killed
  rm -f /tmp/clear /tmp/end /tmp/*.ready /tmp/*.ended
  container living &
  wait_until 60 test -e /tmp/living.ready
  dd if=/dev/urandom of=/tmp/random bs=1M count=8 status=none
  must dd if=/tmp/random of=/dev/ublkb0 bs=1M oflag=direct conv=notrunc status=none
  container waiting &
  waiting=$!
  wait_until 60 test -e /tmp/waiting.ready
  dd if=/dev/ublkb1 of=/dev/null bs=4k count=1 iflag=direct status=none 2> /dev/null &
  reader=$!
  container killed
  kill -0 $reader || fail "a read from the device of another container ended"
  must cmp -n 8388608 /tmp/random /dev/ublkb0
  must dd if=/tmp/random of=/dev/ublkb0 bs=1M seek=8 oflag=direct conv=notrunc status=none
  # The start in `waiting` finds the device of `living` live: one that is about to go is not.
  touch /tmp/clear
  wait $waiting
  touch /tmp/end
  wait
  for name in living waiting killed; do
    [ -e /tmp/$name.ended ] || fail "container $name: $(cat /tmp/$name.log)"
  done
  wait_until 60 nothing_left
  rm -f /tmp/random
}

# configured SIZE: the file of configuration says so of the disk.
configured() {
  printf '[zram0]\nsize = "%s"\n[serve]\ntransport = "ublk"\n' "$1" > /run/rampack.toml
}

# A disk gets other sizes while it is mounted, where the driver can do that.
resized() {
  local daemon bytes how
  mkdir -p /run
  configured 32M
  begins serve --config=/run/rampack.toml || { fail "no daemon: $(cat /run/log)"; return; }
  must mke2fs -q -t ext4 -F /dev/ublkb0
  must mount -t ext4 /dev/ublkb0 /mnt
  configured 64M
  if [ "$(printf '%s\n' 6.16 "$(uname -r)" | sort -V | head -n 1)" = 6.16 ]; then
    must rampack set zram0 resize=48M
    must rampack config apply /run/rampack.toml
    bytes=$((64 << 20))
    dd if=/dev/urandom of=/tmp/random bs=1M count=8 status=none
    must dd if=/tmp/random of=/dev/ublkb0 bs=1M seek=48 oflag=direct conv=notrunc status=none
    must dd if=/dev/ublkb0 of=/tmp/back bs=1M skip=48 count=8 iflag=direct status=none
    must cmp /tmp/random /tmp/back
    rm -f /tmp/random /tmp/back
  else
    for how in 'set zram0 resize=64M' 'config apply /run/rampack.toml'; do
      must_not rampack $how
      grep -q 'before Linux 6.16' /tmp/out || fail "it said $(cat /tmp/out)"
    done
    bytes=$((32 << 20))
  fi
  [ $(($(cat /sys/block/ublkb0/size) * 512)) = $bytes ] || fail "$(cat /sys/block/ublkb0/size) sectors"
  must umount /mnt
  must rampack stop
  wait $daemon || fail "the daemon ended with $?"
  nothing_left || fail "left: $(ls /sys/class/ublk-char)"
}

# A device that is left to the next server keeps its users, and a request that takes long is not
# carried out beside the next one.
left() {
  local writer
  RECOVERABLE=1 serve 2 1 held
  must mke2fs -q -t ext4 -F "$device" 24M
  must mount -t ext4 "$device" /mnt
  dd if=/dev/urandom of=/tmp/random bs=64k count=16 status=none
  must cp /tmp/random /mnt/file
  sync
  dd if=/tmp/random of="$device" bs=4k count=1 seek=9000 oflag=direct conv=notrunc status=none &
  writer=$!
  wait_until 60 holds 1
  if [ "$(printf '%s\n' 6.16 "$(uname -r)" | sort -V | head -n 1)" = 6.16 ]; then
    expect quiesce 'error /dev/ublkb* is in use'
    expect on 'error /dev/ublkb* is in use'
    expect release 'ok*'
    expect on 'ok*'
    wait $writer || fail "a write that took long: $?"
    expect quiesce 'ok true'
    expect down 'error /dev/ublkb* is in use'
    expect on 'ok*'
  else
    expect quiesce 'ok false'
    expect release 'ok*'
    expect on 'ok*'
    wait $writer || fail "a write that took long: $?"
  fi
  must dd if="$device" of=/tmp/back bs=4k skip=9000 count=1 iflag=direct status=none
  must cmp -n 4096 /tmp/random /tmp/back
  must umount /mnt
  must mount -t ext4 "$device" /mnt
  must cmp /tmp/random /mnt/file
  must umount /mnt
  rm -f /tmp/random /tmp/back
  ask quiesce
  # It goes from there as well.
  finish
}

# two_disks TRANSPORT: the file of configuration says so.
two_disks() {
  printf '[zram0]\nsize = "32M"\n[zram1]\nsize = "32M"\n[serve]\ntransport = "%s"\n' "$1" \
    > /run/rampack.toml
}

# follows TRANSPORT: the daemon is killed, and the next one is to serve so.
follows() {
  two_disks "$1"
  : > /run/log
  kill -9 $(cat /proc/$daemon/task/$daemon/children)
  wait_until 60 grep -q 'serving in' /run/log
}

# has DISK DRIVER COUNT: its block device is of that driver, answers, and is its only one; the
# driver ublk has so many.
has() {
  local device loops
  device=$(readlink "/run/rampack/dev/$1")
  loops=$(cat /sys/block/loop*/loop/backing_file 2> /dev/null | grep -c "/$1\$")
  say "$1: $device, $loops loop devices, $(ls /sys/class/ublk-char | wc -l) by ublk"
  case $2$loops-$device in
  loop1-/dev/loop* | ublk0-/dev/ublkb*) ;;
  *) fail "$1 is not reached by $2 alone: $(cat /run/log)" ;;
  esac
  [ "$(ls /sys/class/ublk-char | wc -l)" = "$3" ] || fail "not $3: $(ls /sys/class/ublk-char)"
  rm -f /tmp/answered
  { dd if="$device" of=/dev/null bs=4k count=1 iflag=direct status=none && : > /tmp/answered; } &
  wait_until 60 test -e /tmp/answered
}

# transport ublk|auto: it changes while disks are kept. One that is mounted keeps its way, one that
# nobody uses gets the way that is configured now, and none has two.
transport() {
  local daemon disks=/run/rampack/dev
  mkdir -p /run /mnt
  two_disks "$1"
  begins keep serve --config=/run/rampack.toml || { fail "no daemon: $(cat /run/log)"; return; }
  must mke2fs -q -t ext4 -F $disks/zram0
  must mount -t ext4 $disks/zram0 /mnt
  "from_$1"
  must rampack stop
  wait $daemon || fail "the daemon ended with $?"
  nothing_left || fail "left: $(ls /sys/class/ublk-char)"
}

from_ublk() {
  follows auto
  has zram0 ublk 1
  has zram1 loop 1
  must_not rampack remove zram0
  grep -q 'mounted at /mnt' /tmp/out || fail "it said $(cat /tmp/out)"
  must umount /mnt
  follows auto
  has zram0 loop 0
}

from_auto() {
  follows ublk
  has zram0 loop 1
  has zram1 ublk 1
  must rampack set zram0 resize=48M
  has zram0 loop 1
  must umount /mnt
  must rampack add --size 16M
  has zram2 ublk 2
  must mke2fs -q -t ext4 -F $disks/zram2
  must mount -t ext4 $disks/zram2 /mnt
  must_not rampack remove zram2
  must umount /mnt
  must rampack remove zram2
}

# Somebody else has the device of the server while the next daemon comes. What is mounted stays all
# the same, as long as nobody uses force.
occupied() {
  local daemon other child hung
  mkdir -p /run /mnt
  two_disks ublk
  begins keep serve --config=/run/rampack.toml || { fail "no daemon: $(cat /run/log)"; return; }
  must mke2fs -q -t ext2 -F /dev/ublkb0
  must mount -t ext4 /dev/ublkb0 /mnt
  sync
  child=$(cat /proc/$daemon/task/$daemon/children)
  : > /run/log
  # Who has it waits.
  hung=$(cat /proc/sys/kernel/hung_task_timeout_secs)
  echo 0 > /proc/sys/kernel/hung_task_timeout_secs
  kill -STOP $daemon
  kill -9 $child
  wait_until 60 grep -q zombie /proc/${child% }/status
  rm -f /tmp/occupied
  # The kernel may still be closing it.
  bash -c 'until exec 8<> /dev/ublkc0; do sleep 0.1; done; : > /tmp/occupied; exec sleep 300' &
  other=$!
  wait_until 60 test -e /tmp/occupied
  kill -CONT $daemon
  wait_until 60 grep -q 'serving in' /run/log
  grep -q 'zram0 keeps its contents and gets no block device' /run/log || fail "it said $(cat /run/log)"
  must_not rampack remove zram0
  grep -q 'in use: /mnt' /tmp/out || fail "it said $(cat /tmp/out)"
  kill $other
  follows ublk
  has zram0 ublk 2
  echo "$hung" > /proc/sys/kernel/hung_task_timeout_secs
  must umount /mnt
  must rampack stop
  wait $daemon || fail "the daemon ended with $?"
  nothing_left || fail "left: $(ls /sys/class/ublk-char)"
}

# The server ends without taking it down: it goes by force.
dropped() {
  serve 1 1 plain
  eval "exec ${SERVER[1]}>&-"
  wait "$server" || fail "the server ended with $?"
  [ -z "$(ls /sys/class/ublk-char)" ] || fail "left: $(ls /sys/class/ublk-char)"
}

run() {
  say "$*"
  "$@"
}

say "without the driver: $(serve_ublk available)"
modprobe ublk_drv || exit 1
must serve_ublk available
if [ $# -gt 0 ]; then
  run "$@"
else
  run file_system 1 0
  run file_system 2 2
  run parallel plain
  run parallel waiting
  # A machine without fio has none for its guest either.
  if command -v fio > /dev/null; then run mixed; fi
  run road
  run faults plain
  run faults waiting
  run transport ublk
  run transport auto
  for name in sizes failing slow swap killed unable next containers resized occupied left dropped; do run "$name"; done
fi
dmesg | grep -E 'WARN|BUG|Oops|blocked for more' && fail "the kernel complained"
echo "RESULT kind=ublk failures=$failures"
exit $((failures > 0))
