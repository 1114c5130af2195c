# Servers of ublk devices that are killed (SIGKILL) over and over, and recover their device.
#
#   ublk-kills [KILLS] [CASE]
#
# Each case kills KILLS times, at random times: while the server serves, and while it recovers.
#
#   verify   fio writes to the device and checks what it reads
#   swap     a program in a control group with less memory than it wants swaps to the device
#
# The last line is `RESULT kind=ublk-kills …`. The status is 0 if no byte was wrong, no request
# failed and no program was hurt.
. ./lib.sh

kills=${1:-10}
only=$2
failures=0
# The contents of the device, which are not swapped out, and its size.
contents=/mnt/kept/contents
bytes=$((48 << 20))
server=

fail() {
  say "FAILED: $*"
  failures=$((failures + 1))
}

# pause MILLISECONDS: up to so many.
pause() {
  sleep "$(awk -v most="$1" -v random=$RANDOM 'BEGIN { printf "%.3f", most * random / 32768000 }')"
}

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
  local writer round=0
  begin
  rm -f /tmp/stop /tmp/broken
  (
    until [ -e /tmp/stop ]; do
      fio --name=verify --filename="$device" --direct=1 --ioengine=psync --thread --numjobs=4 \
        --rw=randrw --bsrange=4k-128k --blockalign=4k --size=10m --offset_increment=12m \
        --verify=crc32c --verify_fatal=1 --randseed=$RANDOM --group_reporting > /tmp/fio 2>&1 ||
        { tail -n 20 /tmp/fio; touch /tmp/broken; break; }
      round=$((round + 1))
      echo $round > /tmp/rounds
    done
  ) &
  writer=$!
  kill_servers
  touch /tmp/stop
  wait $writer
  [ ! -e /tmp/broken ] || fail "fio found a fault"
  verified=$(cat /tmp/rounds)
  say "fio checked the device $verified times"
  finish
}

swap() {
  local group=/sys/fs/cgroup/hungry program status
  begin
  mkswap "$device" > /dev/null
  swapon "$device" || fail swapon
  echo +memory > /sys/fs/cgroup/cgroup.subtree_control
  mkdir -p $group
  echo 24M > $group/memory.max
  rm -f /tmp/stop
  (
    echo 0 > $group/cgroup.procs
    exec hog --mib 52 --passes 100000 --seconds 3600 --seed 7 --name hog --random --progress 5 \
      --until /tmp/stop > /tmp/hog
  ) &
  program=$!
  until grep -q filled /tmp/hog 2> /dev/null; do sleep 0.2; done
  kill_servers
  touch /tmp/stop
  wait $program
  status=$?
  tail -n 1 /tmp/hog
  [ $status -eq 0 ] || fail "the program ended with status $status"
  swapped=$(vmstat pswpin)
  [ "$swapped" -gt 1000 ] || fail "only $swapped pages were swapped in"
  swapoff "$device" || fail swapoff
  rmdir $group
  finish
}

modprobe ublk_drv || exit 1
mkdir -p /mnt/kept
mount -t tmpfs -o noswap,size=64m tmpfs /mnt/kept
mkfifo /tmp/commands
exec 9<> /tmp/commands
for case in ${only:-verify swap}; do
  say "$case"
  $case
done
kernel_notes
dmesg | grep -E 'WARN|BUG|Oops|I/O error' && fail "the kernel complained"
echo "RESULT kind=ublk-kills kills=$kills verified=$verified swapped=$swapped failures=$failures" \
  "rc=$((failures > 0))"
exit $((failures > 0))
