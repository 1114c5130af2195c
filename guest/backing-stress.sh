# Backing devices that go bad under global memory pressure: slow, hanging, failing, full, removed,
# and with bytes that are old, changed or cut off.
#
#   backing-stress device|file
#
# `device` is a mapped device below `rampack swap on`, whose table is changed while two programs
# want more memory than there is. `file` is a file on a file system of its own.
#
# One program checks and changes all of its pages all the time; a page that it loses gets contents
# again. The other one waits with its pages swapped out, and checks them at the end. After each
# fault the first program must go on. How long that takes is not judged here: the chore's watch
# finds a machine that stands still.
#
# The last line is `RESULT kind=backing-stress …` with the faults of each kind. The status is 0 if
# no page was wrong, only faults that lose pages lost some, and every fault was told.
. ./lib.sh
stay_in_memory "$@"

rc=0
# Files of this script, which are not swapped out either.
said=/mnt/said
mkdir -p $said
mount -t tmpfs -o noswap,size=8m tmpfs $said
# In /run it could lie in the backing device when that fails.
daemon_log=$said/daemon.log
# Thousands of failed reads would keep the console busy.
echo 1 > /proc/sys/kernel/printk

fail() {
  say "FAILED: $*"
  rc=1
}

# A counter of the cache.
counter() {
  timeout 60 rampack get kernel/debug/zswap "$1"
}

# The number behind `NAME=` in the last line of the program that has it.
of_hog() {
  local number
  number=$(sed -n "s/.* $1=\([0-9]*\).*/\1/p" "$said/$2" | tail -n 1)
  echo "${number:-0}"
}

# What the first program has checked so far, pages that it lost included.
checked() {
  echo $(($(of_hog ok first) + $(of_hog lost first)))
}

# rises BY FROM COMMAND...: waits until the number that the command prints is so much above FROM.
rises() {
  local by=$1 from=$2
  shift 2
  until [ $(($("$@") - from)) -ge "$by" ]; do
    kill -0 "$first" 2> /dev/null || {
      fail "the first program ended"
      return 1
    }
    sleep 0.2
  done
}

# goes_on PAGES: waits until the first program has checked so many pages more.
goes_on() {
  rises "$1" "$(checked)" checked
}

# grows COUNTER FROM BY: waits until the counter of the cache is BY above FROM.
grows() {
  rises "$3" "$2" counter "$1"
}

# Starts the programs: the one that waits first, so that its pages are the oldest.
start_programs() {
  rm -f $said/first $said/second $said/stop $said/go
  (
    hungry hog --mib "$2" --passes 1 --seconds 600 --seed 2 --name second --wait $said/go \
      > $said/second
  ) &
  second=$!
  until grep -q filled $said/second; do sleep 0.2; done
  (
    hungry hog --mib "$1" --passes 100000 --seconds 600 --seed 1 --name first --random --refill \
      --progress 0.5 --until $said/stop > $said/first
  ) &
  first=$!
  until grep -q filled $said/first; do sleep 0.2; done
  say "both programs are filled; $(counter device_pages) pages are on the device"
}

# Ends the first program. Its last check reads all pages.
stop_first() {
  touch $said/stop
  wait "$first"
  local status=$?
  tail -n 1 $said/first
  case $status in
    0 | 4) ;;
    *) fail "the first program ended with status $status" ;;
  esac
}

# has_lost FROM MOST: the first program has lost at most so many pages more than FROM, and no page
# was wrong.
has_lost() {
  local lost
  lost=$(($(of_hog lost first) - $1))
  [ "$(of_hog wrong first)" -eq 0 ] || fail "pages were wrong"
  [ $lost -le "$2" ] || fail "$lost pages were lost"
}

# --- a mapped device ---

sectors=$((640 * 2048))

# table TABLE: puts the table in the place of the present one.
table() {
  dmsetup load back --table "$1"
  dmsetup suspend --noflush --nolockfs back
  dmsetup resume --noudevsync --nolockfs back
}

sound="0 $sectors linear /dev/vdd 0"

# Requests that the device has answered so far.
requests() {
  awk '{ print $1 + $5 }' /sys/block/dm-0/stat
}

slow() {
  local before lost
  before=$(requests) lost=$(of_hog lost first)
  table "0 $sectors delay /dev/vdd 0 10"
  goes_on 200
  table "$sound"
  slow_requests=$(($(requests) - before))
  has_lost "$lost" 0
}

# Meanwhile nothing new can be started, not even by this shell, and no page of it may be missing:
# who needs memory writes a page to swap space, and waits for this device. So a program that has all
# it needs suspends the device, asks the daemon, and resumes the device.
hangs() {
  local lost
  lost=$(of_hog lost first)
  hush back /run/rampack/control.sock 120 > $said/hush ||
    fail "the daemon does not tell of the silence"
  say "the device hung and answers again: $(cat $said/hush)"
  hung_pages=$(sed -n 's/.*waiting=\([0-9]*\).*/\1/p' $said/hush)
  [ "${hung_pages:-0}" -gt 0 ] || fail "no page waited"
  kill -0 "$first" || fail "the first program ended"
  goes_on 300
  has_lost "$lost" 0
}

fails_writes() {
  local before lost
  before=$(counter writeback_fail) lost=$(of_hog lost first)
  table "0 $sectors flakey /dev/vdd 0 0 600 1 error_writes"
  grows writeback_fail "$before" 128
  table "$sound"
  failed_writes=$(($(counter writeback_fail) - before))
  goes_on 300
  has_lost "$lost" 0
}

# reads_badly COUNTER TABLE: no page can be read right with this table, and COUNTER tells of each.
# Their number is in `found` then.
reads_badly() {
  local before
  before=$(counter "$1")
  table "$2"
  grows "$1" "$before" 64
  table "$sound"
  found=$(($(counter "$1") - before))
  goes_on 300
  has_lost 0 100000
}

fails_reads() {
  reads_badly read_back_fail "0 $sectors error"
  failed_reads=$found
}

# Every page that is read has another byte.
flips() {
  reads_badly read_back_changed "0 $sectors flakey /dev/vdd 0 0 600 5 corrupt_bio_byte 77 r 1 0"
  flipped_pages=$found
}

# Writes are acknowledged and dropped: what is read later is older. The last check of the first
# program reads all of its pages.
is_old() {
  local before written
  before=$(counter read_back_changed)
  table "0 $sectors flakey /dev/vdd 0 0 600 1 drop_writes"
  # Pages that were written until here are not old.
  written=$(counter written_back_pages)
  grows written_back_pages "$written" 256
  table "$sound"
  say "$(($(counter written_back_pages) - written)) pages are older than they should be"
  stop_first
  old_pages=$(($(counter read_back_changed) - before))
  [ $old_pages -gt 0 ] || fail "no old page was found"
  has_lost 0 100000
}

# The device is gone for good. The way out is swapoff: programs lose what was there, nothing hangs.
is_removed() {
  table "0 $sectors error"
  say "the device is gone; $(counter device_pages) pages were there"
  rampack_says
  grep . /proc/swaps
  rampack_off || fail "something is left of the swap device"
  grep -q 'could not be read' "$daemon_log" || fail "the log does not tell of failed reads"
  touch $said/go
  wait "$second"
  local status=$?
  tail -n 1 $said/second
  removed_pages=$(of_hog lost second)
  [ "$(of_hog wrong second)" -eq 0 ] || fail "pages were wrong"
  [ $status -eq 4 ] && [ "$removed_pages" -gt 0 ] || fail "no page of the second program was lost"
}

device() {
  modprobe -q dm_mod
  # A page that is read fails alone, not with its neighbours.
  echo 0 > /proc/sys/vm/page-cluster
  for target in dm_delay dm_flakey; do
    modprobe $target || fail "the kernel has no $target"
  done
  dmsetup create --noudevsync --noudevrules back --table "$sound" || exit 1
  rampack_on --backing /dev/dm-0 --size 512M --memory 24M --oom-after 60 || exit 7
  watch_memory $daemon
  start_programs 150 50
  for fault in slow hangs fails_writes fails_reads flips is_old; do
    say "$fault: $(checked) pages checked, $(of_hog lost first) lost"
    $fault
  done
  timeout 60 rampack status | grep 'BACKING FAILS' || fail "status does not tell of the failures"
  is_removed
  dmsetup remove --noudevsync --force back
  kill $monitor
  grep 'backing device' "$daemon_log"
  kernel_notes
  echo "RESULT kind=backing-stress device slow_requests=$slow_requests hung_pages=$hung_pages" \
    "failed_writes=$failed_writes failed_reads=$failed_reads flipped_pages=$flipped_pages" \
    "old_pages=$old_pages removed_pages=$removed_pages ok=$(of_hog ok first)" \
    "wrong=$(($(of_hog wrong first) + $(of_hog wrong second)))" \
    "lost=$(($(of_hog lost first) + $(of_hog lost second))) rc=$rc"
}

# --- a file ---

file_system() {
  mke2fs -q -F -t ext4 /dev/vdd "${1}M"
  mkdir -p /mnt/small
  mount -t ext4 -o noatime /dev/vdd /mnt/small
}

# The file is cut off, and later removed, while it is in use.
is_cut() {
  local before lost
  before=$(counter read_back_fail)
  truncate -s 1M /mnt/small/back
  grows read_back_fail "$before" 64
  cut_pages=$(($(counter read_back_fail) - before))
  goes_on 300
  lost=$(of_hog lost first)
  rm /mnt/small/back
  say "the file is removed; $lost pages are lost"
  goes_on 600
  [ "$(of_hog wrong first)" -eq 0 ] || fail "pages were wrong"
}

file() {
  echo 0 > /proc/sys/vm/page-cluster
  file_system 700
  rampack_on --backing /mnt/small/back --size 400M --memory 24M --oom-after 60 || exit 7
  watch_memory $daemon
  start_programs 150 50
  is_cut
  timeout 60 rampack status | grep 'BACKING FAILS' || fail "status does not tell of the failures"
  stop_first
  touch $said/go
  wait "$second"
  tail -n 1 $said/second
  [ "$(of_hog wrong second)" -eq 0 ] || fail "pages were wrong"
  rampack_off || fail "something is left of the swap device"
  kill $monitor
  kernel_notes
  echo "RESULT kind=backing-stress file cut_pages=$cut_pages ok=$(of_hog ok first)" \
    "wrong=$(($(of_hog wrong first) + $(of_hog wrong second)))" \
    "lost=$(($(of_hog lost first) + $(of_hog lost second))) rc=$rc"
}

case ${1:-device} in
  device | file) ${1:-device} ;;
  *)
    echo "usage: backing-stress device|file"
    exit 2
    ;;
esac
exit $rc
