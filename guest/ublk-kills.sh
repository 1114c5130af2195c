# Servers of ublk devices that are killed (SIGKILL) over and over, and recover their device.
#
#   ublk-kills [KILLS] [CASE]
#
# Each case kills KILLS times, at random times: while the server serves, and while it recovers.
#
#   verify   fio writes to a device of serve_ublk and checks what it reads
#   swap     a program in a control group with less memory than it wants swaps to such a device
#   keep     fio and swap on two disks of a daemon of `rampack keep serve --transport ublk`
#   ends     as verify, with servers that end on purpose: they answer what they have first, and no
#            request is carried out twice (Linux 6.16)
#   upgrade  as keep, with upgrades instead of kills, half of which fail at the last step
#   manage   devices of such daemons come and go, and what is left is cleared; nobody is killed often
#
# The last line is `RESULT kind=ublk-kills …`. The status is 0 if no byte was wrong, no request
# failed and no program was hurt.
. ./lib.sh

kills=${1:-10}
only=$2
# The contents of the device, which are not swapped out, and its size.
contents=/mnt/kept/contents
bytes=$((96 << 20))
server=

# start WORDS: starts serve_ublk, whose standard input stays open.
start() {
  : > /tmp/answer
  serve_ublk "$@" < /tmp/commands > /tmp/answer &
  server=$!
}

# Waits until the server serves; its device is in `device`, `number` and `maker`.
serves() {
  local word left=1200
  until grep -q '^ok' /tmp/answer; do
    if ! kill -0 "$server" 2> /dev/null || [ $((left -= 1)) -eq 0 ]; then
      fail "the server does not serve: $(cat /tmp/answer)"
      return 1
    fi
    sleep 0.05
  done
  read -r word device number maker < /tmp/answer
}

# kill_servers: kills the server so often, and recovers its device.
kill_servers() {
  local count
  for ((count = 1; count <= kills; count++)); do
    pause 400
    kill -9 "$server"
    wait "$server" 2> /dev/null
    start recover $contents $bytes 2 "$number" "$maker"
    # Every other one is killed while it recovers, or soon after.
    if [ $((count % 2)) -eq 0 ]; then serves || return 1; fi
  done
  serves || return 1
  say "$kills servers were killed"
}

begin() {
  rm -f $contents
  start kept $contents $bytes 2
  serves || exit 1
  say "$device: $(cat "/sys/block/${device##*/}"/queue/{scheduler,nr_requests} | tr '\n' ' ')"
}

finish() {
  echo down >&9
  local left=600
  until [ -z "$(ls /sys/class/ublk-char)" ]; do
    [ $((left -= 1)) -gt 0 ] || { fail "the device does not go"; break; }
    sleep 0.1
  done
  kill "$server" 2> /dev/null
  wait "$server" 2> /dev/null
}

verify() {
  local writer
  begin
  rm -f /tmp/stop /tmp/rounds
  check_with_fio "$device" &
  writer=$!
  kill_servers
  checked_by $writer
  finish
}

# requests_of DEVICE: those that the kernel has seen the end of.
requests_of() {
  awk '{ print $1 + $5 + $12 + $16 }' "/sys/block/${1##*/}/stat"
}

ends() {
  local writer count answer carried_out=0 can=true
  [ "$(printf '%s\n' 6.16 "$(uname -r)" | sort -V | head -n 1)" = 6.16 ] || can=false
  begin
  rm -f /tmp/stop /tmp/rounds
  check_with_fio "$device" &
  writer=$!
  for ((count = 1; count <= kills; count++)); do
    pause 400
    answer=$(told quiesce)
    [ "$answer" = "ok $can" ] || fail "quiesce was answered '$answer'"
    if [ $((count % 3)) -eq 0 ]; then
      # It serves on itself.
      answer=$(told on)
      [ "${answer%% *}" = ok ] || fail "it does not serve on: $answer"
    else
      answer=$(told done)
      carried_out=$((carried_out + ${answer#ok }))
      kill -9 "$server"
      wait "$server" 2> /dev/null
      start recover $contents $bytes 2 "$number" "$maker"
      serves || return
    fi
  done
  checked_by $writer
  answer=$(told done)
  carried_out=$((carried_out + ${answer#ok }))
  say "$(requests_of "$device") requests, $carried_out were carried out, $kills servers"
  if $can && [ $carried_out -ne "$(requests_of "$device")" ]; then fail "some came twice"; fi
  finish
}

# told COMMAND: the answer of the server.
told() {
  local before left=600
  before=$(wc -l < /tmp/answer)
  echo "$1" >&9
  until [ "$(wc -l < /tmp/answer)" -gt "$before" ]; do
    [ $((left -= 1)) -gt 0 ] || { fail "no answer to $1"; return; }
    sleep 0.1
  done
  tail -n 1 /tmp/answer
}

# As for a swap device of rampack, which is a partition.
swap() {
  local parts
  begin
  parts="$(told split)"
  [ "$parts" = "ok ${device}p1 ${device}p2" ] || fail "parts: $parts"
  swap_to "${device}p2" 12
  kill_servers
  [ "$(told parts)" = "$parts" ] || fail "other parts: $(told parts)"
  swapped_to "${device}p2"
  finish
}

# The block devices of the answer.
block_devices() {
  grep -o '"block_device": "/dev/ublkb[0-9]*"' /tmp/status | cut -d '"' -f 4 | sort -u
}

# keep [upgrade]
keep() {
  local writer count devices how=${1:-kill}
  before=
  : > $daemon_log
  rampack keep serve --transport ublk --num-devices 2 --size 64M --lock-memory > $daemon_log 2>&1 &
  keeper=$!
  until grep -q 'serving in' $daemon_log; do
    kill -0 $keeper || { fail "there is no keeper: $(cat $daemon_log)"; return; }
    sleep 0.2
  done
  answers || return
  cat $daemon_log
  devices=($(block_devices))
  [ "${#devices[@]}" -eq 2 ] || { fail "no two devices: $(cat /tmp/status)"; return; }
  swap_to "${devices[1]}"
  rm -f /tmp/rounds
  check_with_fio "${devices[0]}" &
  writer=$!
  for ((count = 1; count <= kills; count++)); do
    pause 600
    if [ "$how" = upgrade ]; then
      upgrade_once $count
      continue
    fi
    before=$(daemon_of_keeper)
    kill -9 $before
    # Every other one is killed while it recovers, or soon after.
    if [ $((count % 2)) -eq 0 ]; then answers || break; fi
  done
  answers
  say "$kills times: $how"
  checked_by $writer
  swapped_to "${devices[1]}"
  [ "$(block_devices | tr '\n' ' ')" = "${devices[*]} " ] || fail "other devices: $(block_devices)"
  timeout 60 rampack stop || fail "the daemon does not stop"
  wait $keeper || fail "the keeper ended with $?"
  [ -z "$(ls /sys/class/ublk-char)" ] || fail "left: $(ls /sys/class/ublk-char)"
  tail -n 5 $daemon_log
}

upgrade() {
  keep upgrade
}

# upgrade_once COUNT: every other program cannot be executed once the daemon wants to become it.
upgrade_once() {
  if [ $(($1 % 2)) -eq 0 ]; then
    says 0 '' upgrade
    return
  fi
  cat > /tmp/successor << 'END'
#!/bin/sh
rampack "$@" | sed 's/"rehearses":true/"rehearses":false/'
chmod 0 "$0"
END
  chmod 755 /tmp/successor
  says 1 'cannot execute' upgrade --to /tmp/successor
}

# says STATUS TEXT WORDS: rampack ends with the status and says the text.
says() {
  local status=$1 text=$2 ended
  shift 2
  timeout 120 rampack "$@" > /tmp/out 2>&1
  ended=$?
  [ $ended -eq "$status" ] || fail "rampack $*: status $ended: $(cat /tmp/out)"
  [ -z "$text" ] || grep -q -- "$text" /tmp/out || fail "rampack $*: not '$text': $(cat /tmp/out)"
}

# daemon WORDS: starts rampack and waits until it serves; its process is in `daemon`.
daemon() {
  : > $daemon_log
  rampack "$@" > $daemon_log 2>&1 &
  daemon=$!
  until grep -q 'serving in' $daemon_log; do
    kill -0 $daemon 2> /dev/null || { fail "rampack $*: $(cat $daemon_log)"; return 1; }
    sleep 0.1
  done
}

# soon COMMAND: it is true within a minute.
soon() {
  local left=600
  until "$@"; do
    [ $((left -= 1)) -gt 0 ] || { fail "never: $*"; return 1; }
    sleep 0.1
  done
}

nothing_left() {
  [ -z "$(ls /sys/class/ublk-char)" ]
}

manage() {
  local keeper reader
  daemon serve --transport ublk --num-devices 1 || return
  nothing_left || fail "a device without a size has a block device"
  says 0 '' set zram0 disksize=32M
  [ "$(cat /sys/block/ublkb0/size)" = 65536 ] || fail "the size is $(cat /sys/block/ublkb0/size)"
  mke2fs -q -t ext4 -F /dev/ublkb0 || fail mke2fs
  mkdir -p /mnt/disk
  mount -t ext4 /dev/ublkb0 /mnt/disk || fail mount
  for words in 'reset zram0' 'remove zram0' stop; do
    says 1 'mounted at /mnt/disk' $words
  done
  says 1 'keeps its size' set zram0 resize=64M
  umount /mnt/disk
  says 0 '' reset zram0
  nothing_left || fail "a device that was reset has a block device"
  says 0 '' set zram0 disksize=16M
  mkswap /dev/ublkb0 > /dev/null
  swapon /dev/ublkb0 || fail swapon
  says 1 SWAP remove zram0
  says 0 SWAP status
  swapoff /dev/ublkb0
  says 0 '' remove zram0
  nothing_left || fail "a device that was removed has a block device"
  says 0 '' add --size 16M
  [ -e /sys/block/ublkb0 ] || fail "a new device has no block device"
  # Without a keeper nobody would recover the device: it goes with the daemon, and the next daemon
  # clears the rest.
  kill -9 $daemon
  wait $daemon 2> /dev/null
  soon test ! -e /sys/block/ublkb0
  daemon serve --transport ublk --num-devices 1 || return
  grep -q 'deleted /dev/ublkb0' $daemon_log || fail "nothing was cleared: $(cat $daemon_log)"
  says 0 '' stop
  wait $daemon || fail "the daemon ended with $?"
  nothing_left || fail "left: $(ls /sys/class/ublk-char)"
  # Both are gone, and the device waits. A daemon elsewhere leaves it; the next one there clears it.
  : > $daemon_log
  rampack keep serve --transport ublk --size 16M > $daemon_log 2>&1 &
  keeper=$!
  until grep -q 'serving in' $daemon_log; do sleep 0.1; done
  kill -9 $keeper $(cat /proc/$keeper/task/$keeper/children)
  wait $keeper 2> /dev/null
  dd if=/dev/ublkb0 of=/dev/null bs=4k count=1 iflag=direct status=none 2> /dev/null &
  reader=$!
  daemon --root /run/other serve --transport nbd --num-devices 0 || return
  kill -9 $daemon
  wait $daemon 2> /dev/null
  daemon --root /run/other serve --transport nbd --num-devices 0 || return
  [ -e /sys/block/ublkb0 ] || fail "another daemon deleted the device"
  grep -q 'ublkb0 is left alone' $daemon_log || fail "nothing is said of the device"
  kill -0 $reader || fail "a read from a device that waits ended"
  says 0 '' --root /run/other stop
  wait $daemon
  daemon serve --transport ublk --size 16M || return
  grep -q 'deleted /dev/ublkb0' $daemon_log || fail "nothing was cleared: $(cat $daemon_log)"
  wait $reader && fail "a read from a device that was cleared succeeded"
  says 0 '' stop
  wait $daemon || fail "the daemon ended with $?"
  soon nothing_left
}

modprobe ublk_drv || exit 1
mkdir -p /mnt/kept
mount -t tmpfs -o noswap,size=64m tmpfs /mnt/kept
mkfifo /tmp/commands
exec 9<> /tmp/commands
for case in ${only:-verify swap keep ends upgrade manage}; do
  say "$case"
  $case
  # Devices that are cleared fail their requests.
  if [ "$case" != manage ] && dmesg | grep 'I/O error'; then fail "a request failed"; fi
done
kernel_notes
dmesg | grep -E 'WARN|BUG|Oops' && fail "the kernel complained"
echo "RESULT kind=ublk-kills kills=$kills verified=$verified swapped=$swapped failures=$failures" \
  "rc=$((failures > 0))"
exit $((failures > 0))
